// Package call has requests to functions that no gateway sends: by a sandbox's socket, a workflow, a stream. They go to the
// ingress of the node, and look as if its gateway had sent them.
package call

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// DepthLimit is how deep calls may lead from function to function. AWS stops its functions'
// loops at 16, too, and no pipeline of ours is near that.
const DepthLimit = 16

// By is who calls.
type By struct {
	// Function is namespace/name; empty: it is not certain.
	Function string
	// Depth is how many calls have led to the caller.
	Depth int
}

// Request is what a gateway would have made of r, for a function at a URL of its own. Its trace is that of r's context.
func Request(r *http.Request, id string, f *nodeapi.Function, u *url.URL, by By) (*http.Request, error) {
	if by.Depth >= DepthLimit {
		return nil, problem.New(http.StatusLoopDetected, "CallDepthExceeded", "",
			fmt.Sprintf("functions called each other %d times in a row; a call for another request has to name that request in %s", DepthLimit, filterapi.HeaderRequest))
	}
	refs, err := references(u, r.Header, f)
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Trailer = r.Trailer // which gets its values when the body has been read
	out.URL, out.RequestURI = u, ""
	out.Host = Host(f)
	clean(out.Header)
	out.Header.Set(filterapi.HeaderRequest, id)
	out.Header.Set(filterapi.HeaderFunction, f.GetName())
	out.Header.Set(filterapi.HeaderDepth, strconv.Itoa(by.Depth+1))
	if by.Function != "" { // after clean: nobody says so himself
		out.Header.Set(filterapi.HeaderCaller, by.Function)
	}
	if ref := refs[""]; ref != "" {
		out.Header.Set(filterapi.HeaderInput, ref)
	}
	if named := refs.String(); named != "" {
		out.Header.Set(filterapi.HeaderInputs, named)
	}
	tracing.Inject(r.Context(), out.Header)
	return out, nil
}

// Host is an authority that a function answers to.
func Host(f *nodeapi.Function) string {
	if hosts := f.GetHosts(); len(hosts) > 0 {
		return hosts[0]
	}
	namespace, name, _ := strings.Cut(f.GetName(), "/")
	return name + "." + namespace
}

// Allowed returns the function, as it was looked up, if functions of a namespace may call it. Of other namespaces they do not learn
// which functions those have.
func Allowed(name string, f *nodeapi.Function, err error, namespace string) (*nodeapi.Function, error) {
	if of, _, _ := strings.Cut(name, "/"); of == namespace {
		return f, err
	}
	if err != nil && problem.Of(err).Status != http.StatusNotFound {
		return nil, err
	}
	if err != nil || !slices.Contains(f.GetCallers(), namespace) {
		return nil, problem.New(http.StatusForbidden, "CallNotAllowed", filterapi.AnnotationCallers,
			fmt.Sprintf("no function %s lets functions of namespace %s call it; its annotation %s may name that", name, namespace, filterapi.AnnotationCallers))
	}
	return f, nil
}

// clean removes what only gateways say (see docs/reference/headers.md), and what a gateway
// would say of a client.
func clean(h http.Header) {
	for name := range h {
		lower := strings.ToLower(name)
		if strings.HasPrefix(lower, filterapi.HeaderPrefix) || strings.HasPrefix(lower, "x-envoy-") || strings.Contains(lower, "_") ||
			strings.HasPrefix(lower, "x-forwarded-") || lower == "forwarded" {
			delete(h, name)
		}
	}
}
