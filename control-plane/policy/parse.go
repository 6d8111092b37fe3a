package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/policy/field"
	"github.com/headstart-mesh/headstart/control-plane/stores"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Parse reads a function's annotations against the operator's stores. It reports all
// problems together, as field.Errors.
func Parse(given map[string]string, st stores.Stores) (Policy, error) {
	return parse(given, st, Functions)
}

// ParseJob reads a job's annotations in the same way.
func ParseJob(given map[string]string, st stores.Stores) (Policy, error) {
	return parse(given, st, Jobs)
}

func parse(given map[string]string, st stores.Stores, on Objects) (Policy, error) {
	p := Default()
	errs := unknown(given, Keys(on))
	for _, a := range Annotations(on) {
		text, ok := given[a.Key]
		if !ok {
			continue
		}
		v, problem, fix := a.check(text)
		if problem != "" {
			errs = append(errs, &field.Error{Field: a.Key, Value: text, Problem: problem, Fix: fix})
			v = value{}
		}
		a.set(&p, v)
	}
	if p.Input != "" && p.Store != "" {
		if err := checkStore(p, st); err != nil {
			errs = append(errs, err)
		}
	}
	if err := p.checkPath(given); err != nil {
		errs = append(errs, err)
	}
	if err := p.checkTrigger(given, st); err != nil {
		errs = append(errs, err)
	}
	if err := errs.Err(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// checkPath holds the variables of the input against the path, unless what is wrong with one of
// them is said already.
func (p Policy) checkPath(given map[string]string) *field.Error {
	template, err := reference.ParseTemplate(p.Template())
	if p.Input == "" || p.Path != given[KeyPath] || err != nil {
		return nil
	}
	names := template.Route().Names()
	for _, name := range template.Variables() {
		if !slices.Contains(names, name) {
			return &field.Error{Field: KeyInput, Value: p.Input, Problem: NotInPath, Fix: NotInPathFix}
		}
	}
	return nil
}

// What is said of an input with a variable that the path lacks.
const (
	NotInPath    = "has a {path.<name>} that " + KeyPath + " does not have"
	NotInPathFix = "write that like /videos/{<name>}"
)

// unknown returns the keys of our domain that mean nothing, in their own order. Their
// values stay out: whoever writes headstart.dev/password writes one.
func unknown(given map[string]string, known []string) field.Errors {
	list := strings.Join(known, ", ")
	var errs field.Errors
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if !InDomain(key) || slices.Contains(known, key) {
			continue
		}
		fix := "remove it; known keys are " + list
		if n, ok := Nearest(key, known); ok {
			fix = "did you mean " + n + "? Known keys are " + list
		}
		errs = append(errs, &field.Error{Field: key, Problem: "is no annotation of Headstart", Fix: fix})
	}
	return errs
}

// InDomain reports whether the annotation is Headstart's, even when it is misspelt in
// upper case: Kubernetes allows that, and it would have no effect.
func InDomain(key string) bool {
	return len(key) >= len(Prefix) && strings.EqualFold(key[:len(Prefix)], Prefix)
}

// checkStore holds the input against the operator's allow-list, as far as that is known
// before a request: a bucket that a header names is checked by the node.
func checkStore(p Policy, st stores.Stores) *field.Error {
	store, ok := st.Get(p.Store)
	if !ok {
		fix := "ask the operator to allow it"
		if names := st.Names(); len(names) > 0 {
			fix = "use " + oneOf(names)
		}
		return &field.Error{Field: KeyStore, Value: p.Store, Problem: "is not among the operator's stores", Fix: fix}
	}
	template, err := reference.ParseTemplate(p.Input)
	if err != nil {
		return &field.Error{Field: KeyInput, Value: p.Input, Problem: "is no input reference: " + err.Error(), Fix: "mend it"}
	}
	if !slices.Contains(store.Schemes(), template.Scheme()) {
		return &field.Error{
			Field: KeyInput, Value: p.Input,
			Problem: "does not begin as references to store " + store.Name + " do",
			Fix:     "begin it with " + strings.Join(store.Schemes(), ":// or ") + "://, or name another store in " + KeyStore,
		}
	}
	bucket, literal := template.Bucket()
	if !literal || store.Allows(bucket) {
		return nil
	}
	return &field.Error{
		Field: KeyInput, Value: p.Input,
		Problem: "reads a bucket that store " + store.Name + " does not allow",
		Fix:     "use " + oneOf(store.Buckets) + ", or ask the operator to allow it",
	}
}

// oneOf lists names for a fix, as many as fit a line.
func oneOf(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("one of %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "one of " + strings.Join(names, ", ")
}
