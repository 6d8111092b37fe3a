package knative

import (
	"cmp"
	"maps"
	"regexp"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
)

// What is said of every field outside the subset.
const (
	unsupported    = "not supported by the embedded platform"
	unsupportedFix = "remove it or run on Kubernetes"
)

// identifier is a key that reads well after a dot.
var identifier = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// object is a mapping of which each field is taken once; close refuses the rest.
type object struct {
	self   value
	ok     bool // false: absent or no mapping, which is said already
	fields map[string]value
	absent map[string]bool // what was asked for, and may be misspelt
}

// object returns the mapping, without fields if the value is none.
func (v value) object() object {
	o := object{self: v, fields: map[string]value{}, absent: map[string]bool{}}
	if !v.present() {
		return o
	}
	if v.node.Kind != yaml.MappingNode {
		v.report("is not a mapping", "write fields as name: value")
		return o
	}
	o.ok = true
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, content := v.node.Content[i], v.node.Content[i+1]
		at := value{v.doc, join(v.path, key.Value), key.Line, content}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || isOldBool(key) {
			at.report("is a key that is not a string", "put it in quotes")
			continue
		}
		if _, ok := o.fields[key.Value]; ok {
			at.report("is given twice", "remove one of them")
			continue
		}
		o.fields[key.Value] = at
	}
	return o
}

// join appends a key to a path, in the notation of Kubernetes.
func join(path, key string) string {
	switch {
	case path == "":
		return field.Name(key)
	case identifier.MatchString(key):
		return path + "." + key
	}
	return path + "[" + field.Name(key) + "]"
}

// take returns a field and marks it as known.
func (o object) take(key string) value {
	v, ok := o.fields[key]
	if !ok {
		o.absent[key] = true
		return value{doc: o.self.doc, path: join(o.self.path, key), line: o.self.line}
	}
	delete(o.fields, key)
	if v.node.ShortTag() == "!!null" {
		v.node = nil
	}
	return v
}

// must takes a field that has to be there.
func (o object) must(key, fix string) value {
	v := o.take(key)
	if o.ok && !v.present() {
		v.report("is missing", fix)
	}
	return v
}

// refuse takes a field that is refused with a better hint than the rest.
func (o object) refuse(key, fix string) {
	if v := o.take(key); v.present() {
		v.report(unsupported, fix)
	}
	delete(o.absent, key)
}

// close refuses every field that nobody took, in the document's order.
func (o object) close() {
	rest := slices.SortedFunc(maps.Keys(o.fields), func(a, b string) int {
		return cmp.Or(cmp.Compare(o.fields[a].line, o.fields[b].line), cmp.Compare(a, b))
	})
	absent := slices.Sorted(maps.Keys(o.absent))
	for _, key := range rest {
		fix := unsupportedFix
		if meant, ok := policy.Nearest(key, absent); ok {
			fix = "did you mean " + meant + "? If not, " + fix
		}
		o.fields[key].report(unsupported, fix)
	}
}

// texts returns all fields that are strings and refuses the others.
func (o object) texts() map[string]string {
	m := make(map[string]string, len(o.fields))
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if s, ok := o.fields[key].tryText(); ok {
			m[key] = s
		}
	}
	return m
}
