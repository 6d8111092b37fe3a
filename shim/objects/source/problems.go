package source

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// NotAllowed is a reference outside of what the operator allows for the store.
func NotAllowed(store string, ref Reference) *problem.Problem {
	return problem.New(http.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationInput,
		fmt.Sprintf("store %q does not allow bucket %q", store, ref.Bucket))
}

// OtherScheme is a reference of a scheme that the operator does not allow for the store.
func OtherScheme(store string, ref Reference, allowed string) *problem.Problem {
	return problem.New(http.StatusForbidden, "StoreNotAllowed", filterapi.AnnotationInput,
		fmt.Sprintf("store %q takes references that begin with %s, not with %.16s://", store, allowed, ref.Scheme))
}

// NotFound is an object that the store does not have.
func NotFound(store string, ref Reference) *problem.Problem {
	return problem.New(http.StatusNotFound, problem.ReasonInputNotFound, filterapi.AnnotationInput,
		fmt.Sprintf("store %q has no object %q", store, ref))
}

// Changed is an object of which no single version could be read to the end.
func Changed(store string, ref Reference) *problem.Problem {
	return problem.New(http.StatusBadGateway, problem.ReasonInputChanged, filterapi.AnnotationInput,
		fmt.Sprintf("object %q in store %q changed while it was read", ref, store))
}

// Forbidden is a store that does not accept the node's credentials. The client can do
// nothing about it, so it is the gateway's fault and not its own (502, not 403).
func Forbidden(store, why string) *problem.Problem {
	return problem.New(http.StatusBadGateway, problem.ReasonStoreForbidden, filterapi.AnnotationStore,
		fmt.Sprintf("store %q refuses the node: %s", store, why))
}

// Unavailable is a store that cannot be reached or does not serve what it should.
func Unavailable(store, why string) *problem.Problem {
	return problem.New(http.StatusBadGateway, problem.ReasonStoreUnavailable, filterapi.AnnotationStore,
		fmt.Sprintf("store %q: %s", store, why))
}

// TimedOut is a store that did not deliver in time.
func TimedOut(store string) *problem.Problem {
	return problem.New(http.StatusGatewayTimeout, problem.ReasonStoreTimeout, filterapi.AnnotationStore,
		fmt.Sprintf("store %q did not deliver in time", store))
}

// Ended turns the end of a fetch's context into a problem that wraps the context's
// cause: a timeout, or a fetch that nobody waits for any more.
func Ended(ctx context.Context, store string, ref Reference) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return Because(TimedOut(store), context.Cause(ctx))
	}
	return Because(problem.New(http.StatusServiceUnavailable, "InputCancelled", "",
		fmt.Sprintf("the fetch of %q was cancelled", ref)), context.Cause(ctx))
}

// Because adds what only the log should tell to a problem.
func Because(p *problem.Problem, cause error) error { return fmt.Errorf("%w: %w", p, cause) }
