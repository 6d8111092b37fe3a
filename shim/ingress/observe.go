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
	observedUnnamed    = "unnamed"    // it has nothing that a template names
	observedIncomplete = "incomplete" // something that a template names is missing, there twice, or not usable
	observedRefused    = "refused"    // the store does not allow it
)

// observe notes what a filter tells of a request of a function that is only observed: a hint, what would be a refusal, or that
// there is no input. Nothing is fetched, and the operator hears of no error, as the client gets none.
func (in *Ingress) observe(f *nodeapi.Function, h http.Header) error {
	if len(f.GetObserved()) == 0 {
		return nil // it is active by now, and the gateway does not know it yet
	}
	active := f.IfActive()
	count := func(outcome string) { in.config.Metrics.observed.WithLabelValues(f.GetName(), outcome).Inc() }
	if h.Get(filterapi.HeaderReason) != "" {
		if !isRefusal(active, h) {
			return malformedRefusal()
		}
		in.config.Observed.Incomplete(f, h.Get(filterapi.HeaderField))
		count(observedIncomplete)
		return nil
	}
	refs, err := taken(h, active)
	switch {
	case err != nil:
		return err
	case len(refs) == 0:
		in.config.Observed.Unnamed(f)
		count(observedUnnamed)
	case !made(active, refs):
		return malformedHint() // or of the template before
	case !in.mayRead(active, refs):
		in.config.Observed.Refused(f)
		count(observedRefused)
	default:
		in.config.Observed.Named(f, refs)
		count(observedNamed)
	}
	return nil
}

// mayRead tells whether the store allows the function the references, as far as that is known without asking the store.
func (in *Ingress) mayRead(f *nodeapi.Function, refs reference.Inputs) bool {
	for _, text := range refs {
		ref, err := source.ParseReference(text)
		if err != nil || in.config.Allowed(f.GetName(), f.GetStore(), ref) != nil {
			return false
		}
	}
	return true
}
