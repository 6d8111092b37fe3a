package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// check reads a value, or says what is wrong with it.
func (a Annotation) check(text string) (v value, problem, fix string) {
	if a.Word != "" && text == a.Word {
		return value{text: text}, "", ""
	}
	switch a.Kind {
	case Reference:
		problem, fix = a.checkReference(text)
	case Path:
		if _, err := reference.ParseRoute(text); err != nil {
			problem, fix = "is not a path: "+err.Error(), "write it like "+a.Example
		}
	case Name:
		if !field.IsLabel(text) {
			problem, fix = a.Not, field.LabelFix
		}
	case Bytes:
		return a.checkBytes(text)
	case Duration:
		return a.checkDuration(text)
	case Stream:
		if !StreamForm.MatchString(text) {
			problem, fix = "is not a stream", "write it like "+a.Example
		}
	case Count:
		return a.checkCount(text)
	case Namespaces:
		problem, fix = a.checkNamespaces(text)
	case Names:
		problem, fix = a.checkNames(text)
	case Prefixes:
		if _, err := reference.ParseVolumes(text); err != nil {
			problem, fix = err.Error(), "write it like "+a.Example
		}
	case Choice:
		if !slices.Contains(a.Choices, text) {
			problem, fix = a.NoChoice()
		}
	}
	return value{text: text}, problem, fix
}

// userinfo matches what has one where a reference has its bucket.
var userinfo = regexp.MustCompile(reference.Userinfo())

func (a Annotation) checkReference(text string) (problem, fix string) {
	if userinfo.MatchString(text) {
		return "holds a user or password", "remove it; the operator's store has the credentials"
	}
	if strings.HasPrefix(text, "/") { // where a template may have a path
		return "is not an input reference: " + reference.OtherStore(), a.Like()
	}
	if _, err := reference.ParseTemplate(text); err != nil {
		return "is not an input reference: " + err.Error(), a.Like()
	}
	if a.Literal && strings.Contains(text, "{") {
		return NotLiteral, a.Like()
	}
	return "", ""
}

// NotLiteral is said of a job's input that is a template.
const NotLiteral = "has a placeholder, and a job has no request whose headers could fill it"

// Like says how to write a reference.
func (a Annotation) Like() string {
	if a.Word == "" {
		return "write it like " + a.Example
	}
	return "write it like " + a.Example + ", or " + a.Word
}

// NoChoice is said of what is none of the words of a Choice.
func (a Annotation) NoChoice() (problem, fix string) {
	return a.Not, "use " + strings.Join(a.Choices, " or ")
}

func (a Annotation) checkBytes(text string) (v value, problem, fix string) {
	n, err := quantity.Bytes(text)
	switch {
	case err != nil:
		return v, err.Error(), "write it like " + a.Example
	case n < 1:
		return v, "is no room for any input", "remove the annotation or write it like " + a.Example
	case n > a.Largest:
		return v, "is more than " + quantity.Format(a.Largest), "use at most " + quantity.Format(a.Largest)
	}
	return value{text: text, number: n}, "", ""
}

func (a Annotation) checkDuration(text string) (v value, problem, fix string) {
	d, err := time.ParseDuration(text)
	if err != nil || len(text) > MaxDuration {
		return v, "is not a duration", "write it like 90s or 5m"
	}
	if d < a.Shortest || d > a.Longest {
		return v, "is out of range", "use " + Span(a.Shortest) + " to " + Span(a.Longest)
	}
	return value{text: text, number: int64(d)}, "", ""
}

func (a Annotation) checkNamespaces(text string) (problem, fix string) {
	names := strings.Split(text, ",")
	switch {
	case len(names) > MaxCallers:
		return TooManyNamespaces, TooManyNamespacesFix
	case slices.ContainsFunc(names, func(n string) bool { return !field.IsLabel(n) }):
		return "is not a list of namespaces", "write it like " + a.Example
	}
	return "", ""
}

// What is said of too many namespaces.
var (
	TooManyNamespaces    = fmt.Sprintf("names more than %d namespaces", MaxCallers)
	TooManyNamespacesFix = "put functions that belong together into one"
)

func (a Annotation) checkNames(text string) (problem, fix string) {
	names := strings.Split(text, ",")
	switch {
	case len(names) > int(a.Largest):
		return a.TooManyNames()
	case slices.ContainsFunc(names, func(n string) bool { return !field.IsLabel(n) }):
		return a.Not, "write it like " + a.Example
	case len(slices.Compact(slices.Sorted(slices.Values(names)))) < len(names):
		return NameTwice, NameTwiceFix
	}
	return "", ""
}

// TooManyNames is said of more Names than Largest.
func (a Annotation) TooManyNames() (problem, fix string) {
	return fmt.Sprintf("has more than %d names", a.Largest), "leave out those that the first requests do not need"
}

// What is said of a name that Names have twice.
const (
	NameTwice    = "has a name twice"
	NameTwiceFix = "write each name once"
)
