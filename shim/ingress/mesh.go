package ingress

import (
	"context"
	"net/http"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Keys tell which requests came through a function's own cluster of a gateway, and which a gateway makes itself
// (shim/gatekey).
type Keys interface {
	Valid(function, key string) bool
	Admits(key string) bool
}

// MeshGateway serves the requests that a mesh's gateways on the node send. Others write their routes:
// so only the key says whose function a request is for, and only the function's templates what its
// input may be.
func (in *Ingress) MeshGateway(keys Keys) http.Handler {
	admit := func(r *http.Request, _ *parked) error { return checkKey(r.Header, keys) }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.serve(w, r, entrance{routed: true, admit: admit}, func(ctx context.Context, r *http.Request, p *parked) error {
			return in.place(ctx, w, r, p)
		})
	})
}

// MeshFilters is what h serves for a mesh's gateways: only what has their key comes from their filters.
func (in *Ingress) MeshFilters(keys Keys, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !keys.Admits(r.Header.Get(filterapi.HeaderKey)) {
			in.config.Metrics.hint(hintRefused)
			err := problem.New(http.StatusForbidden, "GatewayUnknown", filterapi.HeaderKey,
				"the request does not come from a gateway's filter: a route of its own leads to the node's daemon, or the "+
					"EnvoyFilter headstart-gateways is of an older version; apply it")
			problem.Write(w, err, r.Header.Get(filterapi.HeaderFunction), r.Header.Get(filterapi.HeaderRequest))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// checkKey is a *problem.Problem for a request that some route has made up.
func checkKey(h http.Header, keys Keys) error {
	if keys.Valid(h.Get(filterapi.HeaderFunction), h.Get(filterapi.HeaderKey)) {
		h.Del(filterapi.HeaderKey)
		return nil
	}
	return problem.New(http.StatusForbidden, "GatewayUnknown", filterapi.HeaderKey,
		"the request did not come through the function's cluster: a route of its own leads to the node's daemon, or the "+
			"EnvoyFilter headstart-keys is missing; apply it")
}

// made tells whether the function's templates can make the references of its inputs.
func made(f *nodeapi.Function, refs reference.Inputs) bool {
	templates := f.Templates()
	for name, ref := range refs {
		t, err := reference.ParseTemplate(templates[name])
		if err != nil { // of a kind that only a newer control plane knows, and no store here has
			continue
		}
		if parsed, err := reference.Parse(ref); err != nil || !t.Makes(parsed) {
			return false
		}
	}
	return true
}
