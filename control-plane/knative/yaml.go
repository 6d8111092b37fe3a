package knative

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// syntaxError is a document that the YAML parser refuses.
type syntaxError struct {
	line int
	text string
}

func (e *syntaxError) Error() string { return "not a manifest: " + e.text }

// yamlLine takes the parser's message apart.
var yamlLine = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)`)

// parseYAML returns the document's root, nil for one that is empty or only comments.
func parseYAML(c chunk) (*yaml.Node, *syntaxError) {
	if len(c.text) > maxDocument {
		return nil, &syntaxError{c.line, fmt.Sprintf("it is larger than %d bytes", maxDocument)}
	}
	var n, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(c.text))
	err := dec.Decode(&n)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err == nil {
		// Line breaks that only YAML knows can hide a document from split.
		if err = dec.Decode(&more); err == nil {
			return nil, &syntaxError{c.line - 1 + more.Line, "a second one follows without a --- line of its own"}
		}
	}
	if !errors.Is(err, io.EOF) {
		parts := yamlLine.FindStringSubmatch(err.Error())
		if parts == nil {
			return nil, &syntaxError{c.line, "the parser gives no reason"}
		}
		line, _ := strconv.Atoi(parts[1]) // 0 without a line
		line = max(line, 1)
		if tabbed(c.text, line) {
			parts[2] = "a tab indents this line; indent with spaces"
		}
		return nil, &syntaxError{c.line - 1 + line, parts[2]}
	}
	root := n.Content[0]
	if root.ShortTag() == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, &syntaxError{c.line - 1 + root.Line, "it is not a mapping"}
	}
	if fancy := findFancy(root); fancy != nil {
		return nil, &syntaxError{c.line - 1 + fancy.Line, "anchors, aliases and tags are not supported; write the value out"}
	}
	return root, nil
}

// tabbed says whether a tab indents the line, which YAML does not allow. The parser only says that it
// found a character, and in an editor the line looks well.
func tabbed(text []byte, line int) bool {
	lines := bytes.Split(text, []byte("\n"))
	if line > len(lines) {
		return false
	}
	is := lines[line-1]
	return bytes.Contains(is[:len(is)-len(bytes.TrimLeft(is, " \t"))], []byte("\t"))
}

// findFancy returns the first node that is more than plain data. Aliases make a small
// document large, and what a tag means depends on the parser.
func findFancy(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0 {
		return n
	}
	for _, child := range n.Content {
		if fancy := findFancy(child); fancy != nil {
			return fancy
		}
	}
	return nil
}
