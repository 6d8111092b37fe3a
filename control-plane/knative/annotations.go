package knative

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const (
	autoscaling = "autoscaling.knative.dev/"
	maxScale    = autoscaling + "max-scale"
	// defaultMaxScale is how many instances a function may have that take one request at a time. Knative has no limit; one
	// machine has.
	defaultMaxScale = 10
)

// harmless are the annotations of a template that ask for what the embedded platform does
// anyway: from zero to one instance and back, or to a few.
var harmless = map[string]struct {
	ok  func(string) bool
	fix string
}{
	autoscaling + "class":         {is("kpa.autoscaling.knative.dev"), "use kpa.autoscaling.knative.dev or run on Kubernetes"},
	autoscaling + "min-scale":     {is("0"), `use "0" or run on Kubernetes`},
	autoscaling + "initial-scale": {is("0"), `use "0" or run on Kubernetes`},
	// Of how many instances a function has that take one request at a time; the one of others is within any limit, and 0
	// means none.
	maxScale: {isCount, "use a whole number"},
}

// elsewhere are the annotations with a counterpart of ours.
var elsewhere = map[string]string{
	autoscaling + "scale-to-zero-pod-retention-period": "set " + policy.KeyScaleToZero + " in metadata.annotations",
	autoscaling + "window":                             "set " + policy.KeyScaleToZero + " in metadata.annotations",
}

func is(want string) func(string) bool { return func(s string) bool { return s == want } }

func isCount(s string) bool {
	_, err := strconv.ParseUint(s, 10, 31)
	return err == nil
}

// templateMetadata reads the metadata of the revision template, and what it asks for.
func (d *document) templateMetadata(o object, st stores.Stores, ds destinations.Destinations, f *platform.Function) policy.Policy {
	o.refuse("name", "remove it; the embedded platform names revisions itself")
	o.take("labels").object().texts()
	annotations := o.take("annotations").object()
	o.close()
	ours := object{self: annotations.self, ok: true, fields: map[string]value{}, absent: map[string]bool{}}
	for _, key := range policy.Keys(policy.Templates) {
		if v, given := annotations.fields[key]; given {
			ours.fields[key] = v
			delete(annotations.fields, key)
		}
	}
	templateAnnotations(annotations, f)
	return d.parsed(ours, func(given map[string]string) (policy.Policy, error) { return policy.ParseTemplate(given, st, ds) })
}

func templateAnnotations(o object, f *platform.Function) {
	f.MaxInstances = defaultMaxScale
	for _, key := range slices.Sorted(maps.Keys(o.fields)) {
		if fix, ok := elsewhere[key]; ok {
			o.refuse(key, fix)
			continue
		}
		if policy.InDomain(key) {
			o.take(key).report("does not belong here", "move it to metadata.annotations")
			continue
		}
		known, ok := harmless[key]
		if !ok {
			continue
		}
		if v := o.take(key); v.present() {
			s := v.text()
			if !known.ok(s) {
				v.reportAs(s, "is "+unsupported, known.fix)
			}
			if n, err := strconv.ParseInt(s, 10, 32); key == maxScale && err == nil && n > 0 { // 0 is no limit
				f.MaxInstances = int32(n)
			}
		}
	}
	o.close()
}

// fieldErrors returns the problems that policy.Parse reports.
func fieldErrors(err error) field.Errors {
	var errs field.Errors
	errors.As(err, &errs)
	return errs
}
