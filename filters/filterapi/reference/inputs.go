package reference

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// MaxNamed bounds the fetches of one request.
	MaxNamed = 8
	// MaxNameBytes bounds the name of an input, which is a directory's name, too.
	MaxNameBytes = 32
)

// The names of inputs are labels of the DNS (RFC 1123, section 2.1), within MaxNameBytes.
var inputNames = Names{
	Shortest: 1, Longest: MaxNameBytes, inside: "a-z0-9-", ends: "a-z0-9", words: "a-z, 0-9 and -",
}

// InputName is a regular expression (RE2) that the name of an input matches as a whole.
func InputName() string { return inputNames.Pattern() }

// IsInputName tells whether an input can have the name.
func IsInputName(name string) bool { return inputNames.Problem(name) == "" }

// Inputs are input references, or templates of them, by the names of the inputs. The input that
// needs no name has the empty one.
type Inputs map[string]string

// NewInputs returns the inputs that are not empty.
func NewInputs(unnamed string, named map[string]string) Inputs {
	inputs := Inputs{}
	if unnamed != "" {
		inputs[""] = unnamed
	}
	maps.Copy(inputs, named)
	return inputs
}

// Names are the names in their order.
func (i Inputs) Names() []string { return slices.Sorted(maps.Keys(i)) }

// Named are those that have a name; nil: none.
func (i Inputs) Named() Inputs {
	if _, all := i[""]; len(i) == 0 || !all {
		return i
	}
	named := maps.Clone(i)
	delete(named, "")
	return named
}

// Unnamed is the one that has none; empty: there is none.
func (i Inputs) Unnamed() Inputs { return NewInputs(i[""], nil) }

// CheckNames tells which name is none, or that there are too many.
func (i Inputs) CheckNames() error {
	named := i.Named()
	if len(named) > MaxNamed {
		return fmt.Errorf("has %d named inputs, at most %d are allowed", len(named), MaxNamed)
	}
	for _, name := range named.Names() {
		if !IsInputName(name) {
			return fmt.Errorf("%.64q is not the name of an input", name)
		}
	}
	return nil
}

// String writes the named references for a header, as ParseNamed reads them: sorted, and each as a
// query has it.
func (i Inputs) String() string {
	var b strings.Builder
	for _, name := range i.Named().Names() {
		if b.Len() > 0 {
			b.WriteByte('&')
		}
		b.WriteString(name + "=" + escape(i[name]))
	}
	return b.String()
}

// ParseNamed reads named references, all of them well-formed.
func ParseNamed(s string) (Inputs, error) {
	named := Inputs{}
	for rest := s; rest != ""; {
		var one string
		one, rest, _ = strings.Cut(rest, "&")
		name, value, _ := strings.Cut(one, "=")
		ref, ok := unescape(value, true)
		if !ok {
			return nil, errors.New("has a % that two hexadecimal digits do not follow")
		}
		if _, twice := named[name]; twice || !IsInputName(name) {
			return nil, fmt.Errorf("%.64q is not the name of an input, or is there twice", name)
		}
		if _, err := Parse(ref); err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
		named[name] = ref
	}
	return named, named.CheckNames()
}

// escape percent-encodes what has a meaning in a query, and what no header can hold.
func escape(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || strings.IndexByte("%&+;", c) >= 0 {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Templates make the references of a request, by the names of the inputs.
type Templates map[string]Template

// ParseTemplates reads the templates of a function's inputs. Its error begins with the input's
// field: "input: ..." or "input.<name>: ...".
func ParseTemplates(texts Inputs) (Templates, error) {
	if err := texts.CheckNames(); err != nil {
		return nil, fmt.Errorf("inputs: %w", err)
	}
	all := Templates{}
	for _, name := range texts.Names() {
		t, err := ParseTemplate(texts[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", strings.TrimSuffix("input."+name, "."), err)
		}
		all[name] = t
	}
	return all, nil
}

// Expand returns the references for a request: those of the inputs that it names, as
// Template.Expand says. Its error is an *Error.
func (t Templates) Expand(r Request) (Inputs, error) {
	inputs := Inputs{}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		ref, ok, err := t[name].Expand(r)
		if err != nil {
			return nil, err
		}
		if ok {
			inputs[name] = ref
		}
	}
	return inputs, nil
}

// Headers are the lower-case names of the headers that the templates name, each once.
func (t Templates) Headers() []string { return t.each(Template.Headers) }

// Parameters are the names of the query's parameters that the templates name, each once.
func (t Templates) Parameters() []string { return t.each(Template.Parameters) }

func (t Templates) each(of func(Template) []string) (names []string) {
	for _, input := range slices.Sorted(maps.Keys(t)) {
		for _, name := range of(t[input]) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
