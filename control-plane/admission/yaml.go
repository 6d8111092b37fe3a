package admission

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime"
)

// YAML returns the policies as documents for kubectl or a chart, with expressions in
// block style as people read them.
func YAML(policies []Policy) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for _, p := range policies {
		for _, object := range []any{&p.Policy, &p.Binding} {
			node, err := document(object)
			if err != nil {
				return nil, err
			}
			if err := enc.Encode(node); err != nil {
				return nil, fmt.Errorf("writing the admission policy: %w", err)
			}
		}
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("writing the admission policy: %w", err)
	}
	return out.Bytes(), nil
}

// document is an object without what only a server writes.
func document(object any) (*yaml.Node, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting the admission policy: %w", err)
	}
	delete(fields, "status")
	var node yaml.Node
	if err := node.Encode(fields); err != nil {
		return nil, fmt.Errorf("converting the admission policy: %w", err)
	}
	literal(&node)
	return &node, nil
}

// literal gives long texts the block style, in which nothing is escaped.
func literal(node *yaml.Node) {
	const long = 40
	if node.Kind == yaml.ScalarNode && (len(node.Value) > long || strings.Contains(node.Value, "\n")) {
		node.Style = yaml.LiteralStyle
	}
	for _, child := range node.Content {
		literal(child)
	}
}
