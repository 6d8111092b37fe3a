package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/policy/field"
	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
	"github.com/headstart-mesh/headstart/control-plane/stores"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// Prefix is the domain of Headstart's annotations. Parse ignores all others.
const Prefix = "headstart.dev/"

// The annotations, in the order of the reference documentation.
const (
	KeyInput        = Prefix + "input"
	KeyStore        = Prefix + "store"
	KeyInputLimit   = Prefix + "input-limit"
	KeyScaleToZero  = Prefix + "scale-to-zero"
	KeyReadyTimeout = Prefix + "ready-timeout"
)

// maxDuration is longer than any sensible spelling of a duration, in bytes.
const maxDuration = 32

// setter puts one annotation's value into the policy, or says what is wrong with it.
type setter func(p *Policy, value string) (problem, fix string)

// keys are the known annotations, sorted as in the reference.
var keys = []struct {
	name string
	set  setter
}{
	{KeyInput, setInput},
	{KeyStore, setStore},
	{KeyInputLimit, setInputLimit},
	{KeyScaleToZero, durationSetter(MinScaleToZero, MaxScaleToZero, "1s to 24h", func(p *Policy) *time.Duration { return &p.ScaleToZero })},
	{KeyReadyTimeout, durationSetter(MinReadyTimeout, MaxReadyTimeout, "1s to 10m", func(p *Policy) *time.Duration { return &p.ReadyTimeout })},
}

// Parse reads a function's annotations against the operator's stores. It reports all
// problems together, as field.Errors.
func Parse(annotations map[string]string, st stores.Stores) (Policy, error) {
	p := Default()
	errs := unknown(annotations)
	for _, k := range keys {
		value, ok := annotations[k.name]
		if !ok {
			continue
		}
		if problem, fix := k.set(&p, value); problem != "" {
			errs = append(errs, &field.Error{Field: k.name, Value: value, Problem: problem, Fix: fix})
		}
	}
	if p.Input != "" && p.Store != "" {
		if err := checkStore(p, st); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errs.Err(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// unknown returns the keys of our domain that mean nothing, in their own order. Their
// values stay out: whoever writes headstart.dev/password writes one.
func unknown(annotations map[string]string) field.Errors {
	known := make([]string, len(keys))
	for i, k := range keys {
		known[i] = k.name
	}
	list := strings.Join(known, ", ")
	var errs field.Errors
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !InDomain(key) || slices.Contains(known, key) {
			continue
		}
		fix := "remove it; known keys are " + list
		if n, ok := nearest(key, known); ok {
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

func setInput(p *Policy, value string) (problem, fix string) {
	const example = "write it like s3://videos/{header.x-key}"
	bucket, _, _ := strings.Cut(strings.TrimPrefix(value, "s3://"), "/")
	if strings.Contains(bucket, "@") {
		return "holds a user or password", "remove it; the operator's store has the credentials"
	}
	if _, err := filterapi.ParseTemplate(value); err != nil {
		return "is no input reference: " + err.Error(), example
	}
	p.Input = value
	return "", ""
}

func setStore(p *Policy, value string) (problem, fix string) {
	// Not the default that the owner did not ask for.
	p.Store = ""
	if !field.IsLabel(value) {
		return "is not the name of a store", field.LabelFix
	}
	p.Store = value
	return "", ""
}

func setInputLimit(p *Policy, value string) (problem, fix string) {
	n, err := quantity.Bytes(value)
	switch {
	case err != nil:
		return err.Error(), "write it like 512Mi"
	case n < 1:
		return "is no room for any input", "remove the annotation or write it like 512Mi"
	case n > MaxInputLimit:
		return "is more than " + quantity.Format(MaxInputLimit), "use at most " + quantity.Format(MaxInputLimit)
	}
	p.InputLimit = n
	return "", ""
}

// durationSetter bounds a duration; span says the bounds in words.
func durationSetter(shortest, longest time.Duration, span string, of func(*Policy) *time.Duration) setter {
	return func(p *Policy, value string) (problem, fix string) {
		d, err := time.ParseDuration(value)
		if err != nil || len(value) > maxDuration {
			return "is not a duration", "write it like 90s or 5m"
		}
		if d < shortest || d > longest {
			return "is out of range", "use " + span
		}
		*of(p) = d
		return "", ""
	}
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
	bucket, _, _ := strings.Cut(strings.TrimPrefix(p.Input, "s3://"), "/")
	if strings.Contains(bucket, "{") || store.Allows(bucket) {
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
