package edit

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Config is a containerd configuration, as one file says it.
type Config struct {
	// Version is 0 if the file names none; containerd takes that for 1.
	Version int
	Imports []string
	// Disabled are plugins that containerd does not start.
	Disabled []string
	// Tree is all of it.
	Tree map[string]any
}

// SyntaxError is where a file is not TOML.
type SyntaxError struct {
	Line   int // from 1
	Reason string
}

// Error names no file; the caller knows it.
func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// Parse reads a configuration.
func Parse(text []byte) (*Config, error) {
	c := &Config{}
	if err := toml.Unmarshal(text, &c.Tree); err != nil {
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			line, _ := e.Position()
			return nil, &SyntaxError{line, e.Error()}
		}
		return nil, err
	}
	if c.Tree == nil {
		c.Tree = map[string]any{}
	}
	if v, ok := c.Tree["version"].(int64); ok {
		c.Version = int(v)
	}
	c.Imports = texts(c.Tree["imports"])
	c.Disabled = texts(c.Tree["disabled_plugins"])
	return c, nil
}

// texts are the strings in an array.
func texts(v any) []string {
	list, _ := v.([]any)
	var all []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// Table returns the table at path in tree, nil if there is none.
func Table(tree map[string]any, path ...string) map[string]any {
	for _, name := range path {
		tree, _ = tree[name].(map[string]any)
	}
	return tree
}

// Merge returns what containerd makes of two configurations: tables are merged, all else
// is b's where b has it.
func Merge(a, b map[string]any) map[string]any {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]any{}
	}
	for k, v := range b {
		was, both := out[k].(map[string]any)
		if now, ok := v.(map[string]any); ok && both {
			out[k] = Merge(was, now)
			continue
		}
		out[k] = v
	}
	return out
}

// Line returns where text first speaks of the table at path, 0 if it cannot be found.
func Line(text []byte, path ...string) int {
	var p unstable.Parser
	p.Reset(text)
	var table []string
	for p.NextExpression() {
		e := p.Expression()
		var names []string
		var first unstable.Range
		for key := e.Key(); key.Next(); {
			if names == nil {
				first = key.Node().Raw
			}
			names = append(names, string(key.Node().Data))
		}
		full := slices.Concat(table, names)
		if e.Kind != unstable.KeyValue {
			table, full = names, names
		}
		if len(full) >= len(path) && slices.Equal(full[:len(path)], path) {
			return p.Shape(first).Start.Line
		}
	}
	return 0
}
