package knative

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// maxText bounds one string, in bytes; Linux takes 128 KiB per argument or variable.
const maxText = 32 << 10

// value is a node of the document that knows its path. Its methods return the zero value
// for what is absent, and note a problem for what is there and of another kind; so a
// reader needs no error handling of its own, and all problems come out together.
type value struct {
	doc  *document
	path string
	line int        // of the field's key, or where it is missing
	node *yaml.Node // nil: absent, or null, which Kubernetes takes for absent
}

func (v value) present() bool { return v.node != nil }

// report notes a problem without repeating the value.
func (v value) report(problem, fix string) { v.reportAs("", problem, fix) }

func (v value) reportAs(shown, problem, fix string) {
	v.doc.add(v.line, &field.Error{Field: v.path, Value: shown, Problem: problem, Fix: fix})
}

// text returns a string, empty if it is absent or wrong.
func (v value) text() string {
	if !v.present() {
		return ""
	}
	s, _ := v.tryText()
	return s
}

// tryText tells an empty string from a wrong value.
func (v value) tryText() (string, bool) {
	if v.node.Kind != yaml.ScalarNode || v.node.ShortTag() != "!!str" || isOldBool(v.node) {
		v.report("is not a string", "put it in quotes if it is meant as one")
		return "", false
	}
	switch {
	case len(v.node.Value) > maxText:
		v.report(fmt.Sprintf("is longer than %d bytes", maxText), "shorten it")
		return "", false
	case strings.ContainsRune(v.node.Value, 0):
		v.report("holds a NUL character", "remove it")
		return "", false
	}
	return v.node.Value, true
}

// label returns a DNS label, empty if it is absent or wrong.
func (v value) label() string {
	if !v.present() {
		return ""
	}
	s, ok := v.tryText()
	if ok && !field.IsLabel(s) {
		v.reportAs(s, "is not a DNS label", field.LabelFix)
		return ""
	}
	return s
}

// oldBools are booleans to Kubernetes (YAML 1.1) and strings to YAML 1.2: only quotes
// make them the same everywhere.
var oldBools = regexp.MustCompile(`^(?i:y|yes|on|n|no|off)$`)

func isOldBool(n *yaml.Node) bool { return n.Style == 0 && oldBools.MatchString(n.Value) }

// integers excludes what YAML 1.1 and 1.2 read differently, such as 0777 and 1_000.
var integers = regexp.MustCompile(`^-?(0|[1-9][0-9]{0,17})$`)

// integer returns a number from lo to hi, and fallback if it is absent or wrong.
func (v value) integer(lo, hi, fallback int64) int64 {
	if !v.present() {
		return fallback
	}
	if v.node.ShortTag() != "!!int" || !integers.MatchString(v.node.Value) {
		v.report("is not an integer", fmt.Sprintf("write a number from %d to %d without quotes", lo, hi))
		return fallback
	}
	n, err := strconv.ParseInt(v.node.Value, 10, 64)
	if err != nil || n < lo || n > hi {
		v.reportAs(v.node.Value, "is out of range", fmt.Sprintf("use %d to %d", lo, hi))
		return fallback
	}
	return n
}

// number returns the text of a quantity, which Kubernetes takes with or without quotes,
// and whether there is one.
func (v value) number() (string, bool) {
	if !v.present() {
		return "", false
	}
	switch v.node.ShortTag() {
	case "!!str", "!!int", "!!float":
		return v.node.Value, true
	}
	v.report("is not a quantity", "write it like 500m or 512Mi")
	return "", false
}

// list returns the first items up to the limit, and notes when there are more.
func (v value) list(limit int) []value {
	if !v.present() {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		v.report("is not a list", "start each item with a dash")
		return nil
	}
	content := v.node.Content
	if len(content) > limit {
		v.report(fmt.Sprintf("has %d items", len(content)), fmt.Sprintf("use at most %d", limit))
		content = content[:limit]
	}
	items := make([]value, len(content))
	for i, n := range content {
		items[i] = value{v.doc, fmt.Sprintf("%s[%d]", v.path, i), n.Line, n}
	}
	return items
}
