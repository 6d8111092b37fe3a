package ingress

import (
	"cmp"
	"crypto/ed25519"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Trust says which keys capabilities are to be signed by. Without any, requests that other nodes hand
// over come without: some control plane signs none.
func (in *Ingress) Trust(keys []ed25519.PublicKey) { in.capabilities.Set(keys) }

// checkBound refuses a request that another node hands over and that no control plane has bound, by
// that node, to the instance that it names on this one. Whose request it is counts only if signed.
func (in *Ingress) checkBound(r *http.Request, p *parked) error {
	wait, cancel := in.waiting(r.Context())
	defer cancel()
	if err := in.config.Functions.await(wait); err != nil { // the keys come before the functions
		return err
	}
	if !in.capabilities.Demands() {
		return nil
	}
	source := ""
	if r.TLS != nil {
		source, _ = peertls.PeerName(*r.TLS) // of nobody there is no capability
	}
	b := capability.Binding{Request: p.id, Function: r.Header.Get(filterapi.HeaderFunction),
		Instance: r.Header.Get(filterapi.HeaderInstance), Input: r.Header.Get(filterapi.HeaderInput),
		Inputs: r.Header.Get(filterapi.HeaderInputs), Source: source, Target: in.config.Node,
		Caller: r.Header.Get(filterapi.HeaderCaller)}
	token := cmp.Or(r.Header.Get(filterapi.HeaderCapability), in.announced.take(p.id))
	if err := in.capabilities.Use(b, token, time.Now()); err != nil {
		// The control plane may not have told its key yet, or signs the next placement.
		return undelivered{problem.New(http.StatusForbidden, problem.ReasonNotBound, filterapi.HeaderCapability,
			"the instance's node does not take the request over from node "+source+": "+err.Error())}
	}
	p.caller = b.Caller
	return nil
}

const (
	// announcedMost is how many capabilities wait for their requests, as many as hints do.
	announcedMost = hintsOpen
	// announcedFor is more than a capability counts.
	announcedFor = capability.Life + 2*capability.Skew
)

// announced are the capabilities of requests whose nodes do not know them: the control plane has sent
// them itself. Its zero value has none.
type announced struct {
	mu sync.Mutex
	of map[string]announcement // by request
}

type announcement struct {
	token string
	at    time.Time
}

func (a *announced) add(m *nodeapi.Expect, now time.Time) {
	if m.GetCapability() == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]announcement{}
	}
	for request, one := range a.of {
		if len(a.of) >= announcedMost || now.Sub(one.at) > announcedFor {
			delete(a.of, request) // any: its request is handed back, and placed again
		}
	}
	a.of[m.GetRequest()] = announcement{m.GetCapability(), now}
}

func (a *announced) take(request string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.of[request]
	delete(a.of, request)
	return one.token
}
