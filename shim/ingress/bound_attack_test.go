package ingress_test

import (
	"crypto/ed25519"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

const secret = "the victim's answer"

// attacked is the node of an instance whose function tells a secret to every caller.
type attacked struct {
	*pair
	delivered atomic.Int64
	inputs    string // references, of what the victim's store has
}

func attack(t *testing.T) *attacked {
	t.Helper()
	a := &attacked{}
	a.pair = newPair(t, func(w http.ResponseWriter, _ *http.Request) {
		a.delivered.Add(1)
		_, _ = io.WriteString(w, secret)
	})
	a.inputs = a.target.put("mine", "", []byte("mine"))
	a.target.put("theirs", "", []byte("theirs"))
	return a
}

// bound is what the control plane has bound, on behalf of node edge-1.
func (a *attacked) bound() capability.Binding {
	return capability.Binding{Request: newID(), Function: withInput, Instance: target, Input: a.inputs,
		Source: "edge-1", Target: "edge-2"}
}

// handOver sends the request of a binding as a node of that name, with its valid certificate.
func (a *attacked) handOver(t *testing.T, node string, b capability.Binding, token string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+proxy.PeerHost("edge-2", a.server.Listener.Addr().String())+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"request": b.Request, "function": b.Function, "instance": b.Instance, "input": b.Input, "inputs": b.Inputs,
		"caller": b.Caller, "capability": token,
	} {
		if value != "" {
			req.Header.Set("x-headstart-"+name, value)
		}
	}
	resp, err := a.peers(t, node).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// gets fails the test if the attacker got anything.
func (a *attacked) getsNothing(t *testing.T, resp *http.Response) {
	t.Helper()
	body := read(t, resp.Body)
	if strings.Contains(body, secret) || a.delivered.Load() != 0 {
		t.Fatalf("the attacker got %d %q", resp.StatusCode, body)
	}
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "NotBound") {
		t.Errorf("the attacker is answered %d %s", resp.StatusCode, body)
	}
	if n := len(a.target.outcomes); n != 0 {
		t.Errorf("%d inputs were fetched for the attacker", n)
	}
}

// A node with a valid certificate hands over what was not bound, by it, to the instance.
func TestAttackANodeHandsOver(t *testing.T) {
	soon := func() time.Time { return time.Now().Add(capability.Life) }
	for name, try := range map[string]func(*testing.T, *attacked) *http.Response{
		"a request that was never bound": func(t *testing.T, a *attacked) *http.Response {
			return a.handOver(t, "edge-1", a.bound(), "")
		},
		"a request that was bound to another node": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			b.Target = "edge-3"
			return a.handOver(t, "edge-1", b, capability.Sign(a.key, b, soon()))
		},
		"a request that was bound for another node": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			return a.handOver(t, "edge-3", b, capability.Sign(a.key, b, soon()))
		},
		"another input": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			token := capability.Sign(a.key, b, soon())
			b.Input = strings.Replace(b.Input, "mine", "theirs", 1)
			return a.handOver(t, "edge-1", b, token)
		},
		"a named input": func(t *testing.T, a *attacked) *http.Response {
			a.target.change(func(f *nodeapi.Function) { f.InputTemplates = map[string]string{"mask": "s3://inputs/{header.x-mask}"} })
			b := a.bound()
			token := capability.Sign(a.key, b, soon())
			b.Inputs = "mask=" + strings.Replace(b.Input, "mine", "theirs", 1)
			return a.handOver(t, "edge-1", b, token)
		},
		"a caller that it claims": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			token := capability.Sign(a.key, b, soon())
			b.Caller = "bank/ledger"
			return a.handOver(t, "edge-1", b, token)
		},
		"a request for another function": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			token := capability.Sign(a.key, b, soon())
			b.Function, b.Input = withoutInput, ""
			return a.handOver(t, "edge-1", b, token)
		},
		"a request for another instance": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			b.Instance = "plain-1"
			token := capability.Sign(a.key, b, soon())
			b.Instance = target
			return a.handOver(t, "edge-1", b, token)
		},
		"another request": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			token := capability.Sign(a.key, b, soon())
			b.Request = newID()
			return a.handOver(t, "edge-1", b, token)
		},
		"a request whose capability has expired": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			return a.handOver(t, "edge-1", b, capability.Sign(a.key, b, time.Now().Add(-capability.Skew-time.Second)))
		},
		"a capability that it has signed itself": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			return a.handOver(t, "edge-1", b, capability.Sign(newKey(t), b, soon()))
		},
		"a capability of a key that was replaced": func(t *testing.T, a *attacked) *http.Response {
			a.target.Trust([]ed25519.PublicKey{newKey(t).Public().(ed25519.PublicKey), newKey(t).Public().(ed25519.PublicKey)})
			b := a.bound()
			return a.handOver(t, "edge-1", b, capability.Sign(a.key, b, soon()))
		},
		"a capability that was announced for another node": func(t *testing.T, a *attacked) *http.Response {
			b := a.bound()
			a.target.Expect(&nodeapi.Expect{Request: b.Request, Capability: capability.Sign(a.key, b, soon())})
			return a.handOver(t, "edge-3", b, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := attack(t)
			a.getsNothing(t, try(t, a))
		})
	}
}

// What was bound once is delivered once.
func TestAttackANodeRepeatsARequest(t *testing.T) {
	a := attack(t)
	b := a.bound()
	token := capability.Sign(a.key, b, time.Now().Add(capability.Life))
	if body := read(t, a.handOver(t, "edge-1", b, token).Body); body != secret {
		t.Fatalf("the request itself is answered %s", body)
	}
	<-a.target.outcomes
	a.delivered.Store(0)
	a.getsNothing(t, a.handOver(t, "edge-1", b, token))
}

// Another node of the cluster has, or takes, the address of the instance's node.
func TestAttackANodeTakesAnothersAddress(t *testing.T) {
	var got atomic.Int64
	p := newPair(t, nil)
	impostor, _ := p.ca.Load(t, "edge-3", localhost)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	s.Listener = tls.NewListener(s.Listener, impostor)
	s.Config.ErrorLog = p.server.Config.ErrorLog
	s.Start()
	defer s.Close()
	p.bind(s.Listener.Addr().String(), true)
	wantProblem(t, p.gateway.do(t, request(t, "POST", withoutInput, newID(), "", strings.NewReader("secret"))), http.StatusBadGateway, "PeerUnreachable", "")
	if got.Load() != 0 {
		t.Errorf("the impostor got %d requests", got.Load())
	}
	// Nor by a connection that it was taken for another one's by.
	p.gateway.cp.activate = first(&nodeapi.Bound{Instance: target, Node: "edge-3", PeerAddress: s.Listener.Addr().String()})
	if resp := p.gateway.do(t, request(t, "GET", withoutInput, newID(), "", nil)); resp.StatusCode != http.StatusOK {
		t.Fatalf("edge-3's own request is answered %d", resp.StatusCode)
	}
	got.Store(0)
	p.bind(s.Listener.Addr().String(), true)
	wantProblem(t, p.gateway.do(t, request(t, "GET", withoutInput, newID(), "", nil)), http.StatusBadGateway, "PeerUnreachable", "")
	if got.Load() != 0 {
		t.Errorf("the impostor got %d requests by its own connection", got.Load())
	}
}

// A daemon of the version before hands requests over without their capability, which the control
// plane has announced.
func TestARequestOfAnOlderDaemonIsDelivered(t *testing.T) {
	a := attack(t)
	b := a.bound()
	a.target.Expect(&nodeapi.Expect{Request: b.Request, Function: b.Function, Instance: b.Instance, Input: b.Input,
		Capability: capability.Sign(a.key, b, time.Now().Add(capability.Life))})
	if body := read(t, a.handOver(t, "edge-1", b, "").Body); body != secret {
		t.Errorf("it is answered %s", body)
	}
	<-a.target.outcomes
}

// While some control plane is of the version before, requests come without capabilities. Whose calls
// they are is not known then.
func TestARequestThatAnOlderControlPlaneHasBound(t *testing.T) {
	var got seen
	var p *pair
	p = newPair(t, func(w http.ResponseWriter, req *http.Request) { see(t, &p.target, &got)(w, req) })
	p.target.Trust(nil)
	p.gateway.cp.sign = nil
	req := request(t, "GET", withoutInput, newID(), "", nil)
	req.Header.Set("x-headstart-caller", "default/caller")
	if resp := p.gateway.do(t, req); resp.StatusCode != http.StatusOK || got.header.Get("x-headstart-caller") != "" {
		t.Errorf("it is answered %d, by a function that saw %v", resp.StatusCode, got.header)
	}
}

// A request that the target does not take over is placed again: its control plane may be about to
// tell the key.
func TestARequestIsPlacedAgainUntilItsKeyIsKnown(t *testing.T) {
	p := newPair(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") })
	known := []ed25519.PublicKey{p.key.Public().(ed25519.PublicKey)}
	p.target.Trust([]ed25519.PublicKey{newKey(t).Public().(ed25519.PublicKey)})
	sign := p.gateway.cp.sign
	var tokens []string
	p.gateway.cp.sign = func(a *nodeapi.Activate, b *nodeapi.Bound) string {
		if len(tokens) == 2 {
			p.target.Trust(known)
		}
		tokens = append(tokens, sign(a, b))
		return tokens[len(tokens)-1]
	}
	if body := read(t, p.gateway.do(t, request(t, "GET", withoutInput, newID(), "", nil)).Body); body != "answer" || len(tokens) != 3 {
		t.Errorf("it is answered %q, after %d placements", body, len(tokens))
	}
}

// The function learns who calls, wherever it runs.
func TestAFunctionLearnsItsCaller(t *testing.T) {
	seesCaller(t, (*ingress.Ingress).Gateway, "default/caller")
}

// A route in a mesh sets headers after all filters.
func TestAttackARouteClaimsACaller(t *testing.T) {
	seesCaller(t, func(in *ingress.Ingress) http.Handler { return in.MeshGateway(anyKey{}) })
}

// seesCaller has a request come in that names its caller, and wants the function to see that.
func seesCaller(t *testing.T, by func(*ingress.Ingress) http.Handler, want ...string) {
	t.Helper()
	for where, node := range map[string]func(*testing.T, http.HandlerFunc) *rig{
		"here":            func(t *testing.T, f http.HandlerFunc) *rig { return newRig(t, f) },
		"on another node": func(t *testing.T, f http.HandlerFunc) *rig { return newPair(t, f).gateway },
	} {
		t.Run(where, func(t *testing.T) {
			var got []string
			r := node(t, func(_ http.ResponseWriter, req *http.Request) { got = req.Header.Values("x-headstart-caller") })
			req := request(t, "GET", withoutInput, newID(), "", nil)
			req.Header.Set("x-headstart-caller", "default/caller")
			resp := do(t, unixClient(t, serveUnix(t, by(r.Ingress))), req)
			if resp.StatusCode != http.StatusOK || !slices.Equal(got, want) {
				t.Errorf("answered %d; the function saw %q", resp.StatusCode, got)
			}
		})
	}
}

// anyKey takes all requests for a gateway's.
type anyKey struct{}

func (anyKey) Valid(string, string) bool { return true }
func (anyKey) Admits(string) bool        { return true }
