package ingress

import (
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// What a request of an observed function says of its inputs.
const (
	observedNamed      = "named"
	observedIncomplete = "incomplete" // it lacks something that a template names
	observedRefused    = "refused"    // of a bucket that the store does not allow, or of a template from before
)

// observe notes what a filter tells of a request of a function that is only observed: a hint, or what would be a refusal.
// Nothing is fetched, and the operator hears of no error, as the client gets none.
func (in *Ingress) observe(f *nodeapi.Function, h http.Header, refused bool) error {
	active := f.IfActive()
	if refused {
		if !isRefusal(active, h) {
			return malformedRefusal()
		}
		in.config.Observed.Incomplete(f, h.Get(filterapi.HeaderField))
		in.config.Metrics.observed.WithLabelValues(f.GetName(), observedIncomplete).Inc()
		return nil
	}
	refs, err := taken(h, active)
	if err == nil && len(refs) == 0 {
		err = malformedHint()
	}
	if err != nil {
		in.config.Metrics.hint(hintRefused)
		return err
	}
	if !in.mayRead(active, refs) {
		in.config.Observed.Refused(f)
		in.config.Metrics.observed.WithLabelValues(f.GetName(), observedRefused).Inc()
		return nil
	}
	in.config.Observed.Named(f, refs)
	in.config.Metrics.observed.WithLabelValues(f.GetName(), observedNamed).Inc()
	return nil
}

// mayRead tells whether the function may read the references, as far as that is known without its store.
func (in *Ingress) mayRead(f *nodeapi.Function, refs reference.Inputs) bool {
	if !made(f, refs) {
		return false
	}
	for _, text := range refs {
		ref, err := source.ParseReference(text)
		if err != nil || in.config.Allowed(f.GetName(), f.GetStore(), ref) != nil {
			return false
		}
	}
	return true
}
