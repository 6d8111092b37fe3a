package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// Parse reads a function's annotations against the operator's stores. It reports all
// problems together, as field.Errors.
func Parse(given map[string]string, st stores.Stores) (Policy, error) {
	return parse(given, st, nil, Functions)
}

// ParseJob reads a job's annotations in the same way, also against the operator's destinations.
func ParseJob(given map[string]string, st stores.Stores, ds destinations.Destinations) (Policy, error) {
	return parse(given, st, ds, Jobs)
}

// ParseTemplate reads the annotations of a function's pod template, of which the policy's Volumes and Connections are.
func ParseTemplate(given map[string]string, st stores.Stores, ds destinations.Destinations) (Policy, error) {
	return parse(given, st, ds, Templates)
}

// ParseWorkflow reads those of a workflow.
func ParseWorkflow(given map[string]string, st stores.Stores) (Policy, error) {
	return parse(given, st, nil, Workflows)
}

func parse(given map[string]string, st stores.Stores, ds destinations.Destinations, on Objects) (Policy, error) {
	p := Default()
	p.Volumes.Wait = DefaultVolumesWait
	errs := unknown(given, on)
	for _, a := range Annotations(on) {
		for _, key := range a.keys(given) {
			text := given[key]
			v, problem, fix := a.check(text)
			if problem != "" {
				errs = append(errs, &field.Error{Field: key, Value: text, Problem: problem, Fix: fix})
				v = value{}
			}
			v.name = strings.TrimPrefix(key, filterapi.AnnotationNamed)
			a.set(&p, v)
		}
	}
	if len(p.Named) > reference.MaxNamed {
		errs = append(errs, &field.Error{Field: KeyNamedInput, Problem: TooManyNamed, Fix: TooManyNamedFix})
	}
	errs = append(errs, p.checkStore(st)...)
	errs = append(errs, p.checkVolumes(given[KeyVolumes], st)...)
	errs = append(errs, p.checkS3(st)...)
	errs = append(errs, p.checkConnections(ds)...)
	errs = append(errs, p.checkPath(given)...)
	errs = append(errs, p.checkMode(given)...)
	if err := p.checkTrigger(given, st); err != nil {
		errs = append(errs, err)
	}
	if err := errs.Err(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// checkPath holds the variables of the inputs against the path, unless what is wrong with that is
// said already.
func (p Policy) checkPath(given map[string]string) (errs field.Errors) {
	if p.Path != given[KeyPath] {
		return nil
	}
	route, _ := reference.ParseRoute(p.Path) // without a path it has no variables
	for _, name := range p.inputs().Names() {
		input := p.inputs()[name]
		template, err := reference.ParseTemplate(input)
		if err == nil && !contains(route.Names(), template.Variables()) {
			errs = append(errs, &field.Error{Field: filterapi.InputKey(name), Value: input,
				Problem: NotInPath, Fix: NotInPathFix})
		}
	}
	return errs
}

// inputs are the templates as they were written.
func (p Policy) inputs() reference.Inputs { return reference.NewInputs(p.Input, p.Named) }

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// What is said of an input with a variable that the path lacks.
const (
	NotInPath    = "has a {path.<name>} that " + KeyPath + " does not have"
	NotInPathFix = "write that like /videos/{<name>}"
)

// What is said of the keys of named inputs.
const (
	NoInputName   = "has no name of an input at its end"
	OneInputOfJob = "is for functions: a job has one input"
	OneOfJobFix   = "use " + KeyInput
)

// What is said of annotations of pods that are a function's own.
const (
	OfPods    = "is of pods"
	OfPodsFix = "move it to spec.template.metadata.annotations"
)

// What is said of wrong names, and of too many.
var (
	NoInputNameFix = fmt.Sprintf("use 1 to %d of a-z, 0-9 and -, starting and ending with a letter or digit",
		reference.MaxNameBytes)
	TooManyNamed    = fmt.Sprintf("is there more than %d times", reference.MaxNamed)
	TooManyNamedFix = "put what belongs together into one object"
)

// unknown returns the keys of our domain that mean nothing, in their own order. Their
// values stay out: whoever writes headstart.dev/password writes one.
func unknown(given map[string]string, on Objects) field.Errors {
	known := Keys(on)
	list := strings.Join(known, ", ")
	var errs field.Errors
	for _, key := range slices.Sorted(maps.Keys(given)) {
		name, named := strings.CutPrefix(key, filterapi.AnnotationNamed)
		switch {
		case !InDomain(key) || slices.Contains(known, key) && !named:
		case on == Functions && slices.Contains(Keys(Templates), key):
			errs = append(errs, &field.Error{Field: key, Problem: OfPods, Fix: OfPodsFix})
		case named && on != Functions:
			errs = append(errs, &field.Error{Field: key, Problem: OneInputOfJob, Fix: OneOfJobFix})
		case named && !reference.IsInputName(name):
			errs = append(errs, &field.Error{Field: key, Problem: NoInputName, Fix: NoInputNameFix})
		case named:
		default:
			fix := "remove it; known keys are " + list
			if n, ok := nearestKey(key, known); ok {
				fix = "did you mean " + n + "? Known keys are " + list
			}
			errs = append(errs, &field.Error{Field: key, Problem: "is not a Headstart annotation", Fix: fix})
		}
	}
	return errs
}

// nearestKey is the known key that another one most likely misspells, with that one's own name
// where it has one.
func nearestKey(key string, known []string) (string, bool) {
	known = slices.Clone(known)
	for i, k := range known {
		if k != KeyNamedInput {
			continue
		}
		if _, name, ok := strings.Cut(strings.ToLower(key[len(Prefix):]), "."); ok && reference.IsInputName(name) {
			known[i] = filterapi.AnnotationNamed + name
		}
	}
	return Nearest(key, known)
}

// InDomain reports whether the annotation is Headstart's, even when it is misspelt in
// upper case: Kubernetes allows that, and it would have no effect.
func InDomain(key string) bool {
	return len(key) >= len(Prefix) && strings.EqualFold(key[:len(Prefix)], Prefix)
}

// checkStore holds the inputs against the operator's allow-list, as far as that is known
// before a request: a bucket that a header names is checked by the node.
func (p Policy) checkStore(st stores.Stores) (errs field.Errors) {
	inputs := p.inputs()
	if len(inputs)+len(p.Volumes.List) == 0 || p.Store == "" {
		return nil
	}
	store, ok := st.Get(p.Store)
	if !ok {
		return field.Errors{unknownStore(KeyStore, p.Store, st)}
	}
	for _, name := range inputs.Names() {
		if problem, fix := granted(inputs[name], store); problem != "" {
			errs = append(errs, &field.Error{
				Field: filterapi.InputKey(name), Value: inputs[name], Problem: problem, Fix: fix,
			})
		}
	}
	return errs
}

// granted says what keeps an input from being read from the store.
func granted(input string, store stores.Store) (problem, fix string) {
	template, err := reference.ParseTemplate(input)
	if err != nil {
		return "is not an input reference: " + err.Error(), "fix it"
	}
	if !slices.Contains(store.Schemes(), template.Scheme()) {
		return "does not begin as references to store " + store.Name + " do",
			"begin it with " + strings.Join(store.Schemes(), ":// or ") + "://, or name another store in " + KeyStore
	}
	bucket, literal := template.Bucket()
	if !literal || store.Allows(bucket) {
		return "", ""
	}
	return "reads a bucket that store " + store.Name + " does not allow",
		"use " + oneOf(store.Buckets) + ", or ask the operator to allow it"
}

// unknownStore says of a key's value that the operator has no such store.
func unknownStore(key, name string, st stores.Stores) *field.Error {
	fix := "ask the operator to allow it"
	if names := st.Names(); len(names) > 0 {
		fix = "use " + oneOf(names)
	}
	return &field.Error{Field: key, Value: name, Problem: "is not among the operator's stores", Fix: fix}
}

// oneOf lists names for a fix, as many as fit a line.
func oneOf(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("one of %s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "one of " + strings.Join(names, ", ")
}
