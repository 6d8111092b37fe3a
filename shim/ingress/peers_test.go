package ingress_test

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

// localhost is where a test's nodes are.
var localhost = net.IPv4(127, 0, 0, 1)

// pair is a gateway's node and the node that has the instance.
type pair struct {
	ca              *peertlstest.Authority
	gateway, target *rig
	key             ed25519.PrivateKey // the control plane's
	server          *httptest.Server   // the target's
	// parked gets a value when the gateway's node has heard that the target has a request.
	parked chan struct{}
}

// hearing tells of what the gateway's node hears before an answer, just as it does.
func (p *pair) hearing(peers http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		heard := func(_ int, header textproto.MIMEHeader) error {
			if header.Get("x-headstart-progress") == "parked" {
				select {
				case p.parked <- struct{}{}:
				default:
				}
			}
			return nil
		}
		return peers.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: heard})))
	})
}

// newPair returns two nodes. All requests that come in at gateway are bound to target.
func newPair(t *testing.T, function http.HandlerFunc) *pair {
	t.Helper()
	ca := peertlstest.New(t)
	serverTLS, _ := ca.Load(t, "edge-2", localhost)
	p := &pair{
		ca: ca, target: newNodeNamed(t, "edge-2", http.DefaultTransport), key: newKey(t), parked: make(chan struct{}, 1),
	}
	p.target.Trust([]ed25519.PublicKey{p.key.Public().(ed25519.PublicKey)})
	if function != nil {
		p.target.instances.run(t, function)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(p.target.Peers())
	_ = s.Listener.Close()
	s.Listener = tls.NewListener(l, serverTLS)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnContext = serve.WithConnection
	s.Start()
	t.Cleanup(s.Close)
	p.server = s
	p.gateway = newNode(t, p.hearing(p.peers(t, "edge-1")))
	p.gateway.cp.sign = func(a *nodeapi.Activate, b *nodeapi.Bound) string {
		return capability.Sign(p.key, binding(a, b), time.Now().Add(capability.Life))
	}
	p.gateway.gateway = unixClient(t, serveUnix(t, p.gateway.Gateway()))
	p.bind(l.Addr().String(), true)
	return p
}

// peers sends requests to other nodes with the certificate of that one.
func (p *pair) peers(t *testing.T, node string) *http.Transport {
	t.Helper()
	_, conf := p.ca.Load(t, node, localhost)
	transport := proxy.NewPeerTransport(
		func(node, host string) (*tls.Config, error) {
			return peertls.Named(peertls.ClientFor(conf, host), node), nil
		}, nil,
	)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// binding is what a control plane signs of a request that is parked on edge-1.
func binding(a *nodeapi.Activate, b *nodeapi.Bound) capability.Binding {
	return capability.Binding{Request: a.GetRequest(), Function: a.GetFunction(), Instance: b.GetInstance(),
		Input: a.GetInput(), Inputs: reference.NewInputs("", a.GetInputs()).String(), Source: "edge-1",
		Target: b.GetNode(), Caller: a.GetCaller()}
}

func (p *pair) bind(address string, cold bool) {
	p.gateway.cp.activate = func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: address, Cold: cold}, nil
	}
}

// The target fetches the input by itself; the gateway's node lets go of what it has.
func TestARequestIsHandedOver(t *testing.T) {
	var got seen
	var p *pair
	p = newPair(t, func(w http.ResponseWriter, req *http.Request) {
		see(t, &p.target, &got)(w, req)
		_, _ = io.WriteString(w, "answer")
	})
	p.gateway.store.Before = stall // a node far from the store
	ref := p.gateway.put("some", "text/plain", []byte("far"))
	p.target.put("some", "text/plain", []byte("near"))
	id := newID()
	req := request(t, "POST", withInput, id, ref, nil)
	req.Header.Set("X-Forwarded-For", "192.0.2.1")
	req.Header.Set("Connection", "x-headstart-function, x-headstart-input") // of no avail
	call(p.gateway.Hints(), hint(withInput, id, ref))
	resp := p.gateway.do(t, req)
	if body := read(t, resp.Body); body != "answer" || !slices.Equal(resp.Header["X-Headstart-Request"], []string{id}) {
		t.Fatalf("%d %s, %v", resp.StatusCode, body, resp.Header)
	}
	if got.body != "near" || got.file != "near" || got.header.Get("Content-Type") != "text/plain" || got.header.Get("X-Forwarded-For") != "192.0.2.1" {
		t.Errorf("the function saw %+v", got)
	}
	for name := range got.header {
		if strings.HasPrefix(name, "X-Headstart-") && name != "X-Headstart-Request" && name != "X-Headstart-Input-File" {
			t.Errorf("the function sees %s", name)
		}
	}
	if o := <-p.gateway.outcomes; o.Reason != "InputCancelled" || o.Bytes != 0 {
		t.Errorf("the gateway's own fetch ended with %+v", o)
	}
}

func TestBodiesAndUpgradesAreHandedOver(t *testing.T) {
	p := newPair(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Upgrade") != "" {
			upgrade(w, req)
			return
		}
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.Copy(w, req.Body)
		w.Header().Set("X-Sum", req.Trailer.Get("X-Part"))
	})
	req := request(t, "POST", withoutInput, newID(), "", io.MultiReader(strings.NewReader("own body")))
	req.Trailer = http.Header{"X-Part": {"7"}}
	resp := p.gateway.do(t, req)
	if body := read(t, resp.Body); body != "own body" || resp.Trailer.Get("X-Sum") != "7" {
		t.Errorf("%s, trailers %v", body, resp.Trailer)
	}
	echoes(t, p.gateway.do(t, upgradeRequest(t, newID())))
}

// A peer's problem reaches the client as it is, and the operator hears of it once.
func TestAPeersProblemIsRelayed(t *testing.T) {
	p := newPair(t, abort)
	ref := p.gateway.put("some", "", []byte("input"))
	p.target.put("some", "", []byte("input"))
	resp := p.gateway.do(t, request(t, "POST", withInput, newID(), ref, nil))
	wantProblem(t, resp, http.StatusBadGateway, "FunctionFailed", "")
	if here, there := p.gateway.cp.told(), p.target.cp.told(); here != nil || !slices.Equal(there, []string{"FunctionFailed"}) {
		t.Errorf("the operator is told %v by the gateway's node and %v by the target's", here, there)
	}
	if n := len(resp.Header["X-Headstart-Request"]); n != 1 {
		t.Errorf("the answer has %d ids", n)
	}
}

// A body that the gateway's own node has lost on the way is not the other node's silence.
func TestABodyIsLostOnItsWayToAPeer(t *testing.T) {
	lost := problem.New(http.StatusServiceUnavailable, "BufferUnavailable", "", "a part of the input is lost")
	r := newNode(
		t,
		roundTripper(
			func(*http.Request) (*http.Response, error) { return nil, fmt.Errorf("reading the body: %w", lost) },
		),
	)
	r.cp.activate = func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: "192.0.2.1:1", Cold: true}, nil
	}
	wantProblem(
		t, call(r.Gateway(), request(t, "POST", withoutInput, newID(), "", strings.NewReader("body"))),
		http.StatusServiceUnavailable, "BufferUnavailable", "",
	)
}

func TestAPeerThatFails(t *testing.T) {
	half := func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	t.Run("midway of the answer", func(t *testing.T) {
		p := newPair(t, half)
		resp := p.gateway.do(t, request(t, "GET", withoutInput, newID(), "", nil))
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("half an answer looks whole")
		}
		eventually(t, "it is logged", func() bool { return strings.Contains(p.gateway.logs.String(), "PeerFailed") })
		if here, there := p.gateway.cp.told(), p.target.cp.told(); here != nil || !slices.Equal(there, []string{"FunctionFailed"}) {
			t.Errorf("the operator is told %v by the gateway's node and %v by the target's", here, there)
		}
	})
	t.Run("unreachable", func(t *testing.T) {
		p := newPair(t, nil)
		p.bind("127.0.0.1:1", true)
		prob := wantProblem(t, p.gateway.do(t, request(t, "GET", withoutInput, newID(), "", nil)), http.StatusBadGateway, "PeerUnreachable", "")
		if strings.Contains(prob.Detail, "edge-2") || !strings.Contains(p.gateway.logs.String(), "edge-2") ||
			!slices.Equal(p.gateway.cp.told(), []string{"PeerUnreachable"}) {
			t.Errorf("%s; the operator is told %v", prob.Detail, p.gateway.cp.told())
		}
	})
	t.Run("another authority's", func(t *testing.T) {
		p := newPair(t, nil)
		other, _ := peertlstest.New(t).Load(t, "edge-2", localhost)
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Listener = tls.NewListener(s.Listener, other)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.Start()
		defer s.Close()
		p.bind(s.Listener.Addr().String(), true)
		wantProblem(t, p.gateway.do(t, request(t, "GET", withoutInput, newID(), "", nil)), http.StatusBadGateway, "PeerUnreachable", "")
	})
	t.Run("silent", func(t *testing.T) {
		r := newNode(t, silent{})
		r.cp.activate = func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
			return &nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: "192.0.2.1:1"}, nil
		}
		r.change(func(f *nodeapi.Function) { // less than nothing, with what the node adds to it
			f.ReadyTimeout, f.RequestTimeout = durationpb.New(-time.Hour), durationpb.New(0)
		})
		wantProblem(t, call(r.Gateway(), request(t, "GET", withInput, newID(), "", nil)), http.StatusGatewayTimeout, "PeerTimeout", "")
	})
}

// silent is a peer that never answers.
type silent struct{}

func (silent) RoundTrip(req *http.Request) (*http.Response, error) { return nil, hang(req.Context()) }

// A client that leaves ends its request on both nodes.
func TestAClientThatLeavesIsForgottenByBothNodes(t *testing.T) {
	p := newPair(t, nil)
	ctx, leave := context.WithCancel(t.Context())
	p.target.instances.ready = func(ctx context.Context, _ string) (netip.AddrPort, error) {
		leave()
		return netip.AddrPort{}, hang(ctx)
	}
	p.target.store.Before = stall
	ref := p.gateway.put("some", "", []byte("input"))
	p.target.put("some", "", []byte("input"))
	if _, err := p.gateway.gateway.Do(request(t, "POST", withInput, newID(), ref, nil).WithContext(ctx)); err == nil {
		t.Error("the client is answered")
	}
	for _, r := range []*rig{p.gateway, p.target} {
		eventually(t, "nothing is held", func() bool { return r.cp.holds(withInput) == 0 })
		<-r.outcomes
		r.nothingLeft(t)
		if told := r.cp.told(); told != nil {
			t.Errorf("the operator is told %v", told)
		}
	}
}
