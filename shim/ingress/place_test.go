package ingress_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

// first answers the first activation with b, and the others with the instance of this node.
func first(b *nodeapi.Bound) func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
	var asked atomic.Int32
	return func(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		if asked.Add(1) == 1 {
			return b, nil
		}
		return &nodeapi.Bound{Request: a.GetRequest(), Instance: target, Node: "edge-1"}, nil
	}
}

// A connection between nodes that is kept may end just as the next request is written. Nobody got
// that, and it is asked again by another, whatever its method and wherever its body is.
func TestAKeptConnectionThatEndsHasNoRequest(t *testing.T) {
	const size = 1 << 20
	for name, c := range map[string]struct {
		function string
		body     []byte
	}{
		"no body":                   {withoutInput, nil},
		"a body that is kept":       {withoutInput, []byte("body")},
		"a body in the buffer":      {withBody, bytes.Repeat([]byte("0123456789abcdef"), size/16)},
		"a small one in the buffer": {withBody, []byte("body")},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, digests)
			var mu sync.Mutex
			requests := map[string]int{} // by connection
			p.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				mu.Lock()
				requests[req.RemoteAddr]++
				second := requests[req.RemoteAddr] == 2
				mu.Unlock()
				if !second {
					p.target.Peers().ServeHTTP(w, req)
					return
				}
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_ = conn.Close() // without a word, its body unread
			})
			want := fmt.Sprintf("%x %d ", sha256.Sum256(c.body), len(c.body))
			for range 3 {
				if got := read(t, p.gateway.do(t, request(t, http.MethodPost, c.function, newID(), "", bytes.NewReader(c.body))).Body); got != want {
					t.Errorf("it is answered %s, want %s; %s", got, want, p.gateway.logs)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(requests) < 2 {
				t.Errorf("no connection was kept: %v", requests)
			}
			if told := p.gateway.cp.told(); told != nil {
				t.Errorf("the operator is told %v", told)
			}
		})
	}
}

// closing is a listener's address at which nobody listens any more.
func closing(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A request whose instance is gone before it got there goes to another, with its input or
// its body, and nobody hears of it but the metrics and the trace.
func TestARequestThatNobodyGotIsPlacedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testing.T, *rig)
		reason  string
	}{
		"gone":    {func(_ *testing.T, r *rig) { r.cp.activate = first(&nodeapi.Bound{Instance: "other"}) }, "InstanceGone"},
		"stopped": {func(_ *testing.T, r *rig) { r.instances.ready = firstReady(r, netip.AddrPort{}, stopped) }, "InstanceStopped"},
		"failed before": {func(_ *testing.T, r *rig) {
			failed := problem.New(http.StatusBadGateway, "SandboxFailed", "", "it could not be started")
			r.instances.ready = firstReady(r, netip.AddrPort{}, problem.TooLate{Problem: failed})
		}, "SandboxFailed"},
		"gone once ready": {func(_ *testing.T, r *rig) {
			r.cp.activate = first(&nodeapi.Bound{Instance: "other"})
			r.instances.ready = func(context.Context, string) (netip.AddrPort, error) { return r.instances.address, nil }
		}, "InstanceGone"},
		"takes no connections": {func(t *testing.T, r *rig) {
			r.instances.ready = firstReady(r, netip.MustParseAddrPort(closing(t)), nil)
		}, "FunctionFailed"},
		"no autoscaler": {func(t *testing.T, r *rig) {
			r.cp.activate = first(&nodeapi.Bound{RelayAddress: closing(t), RelayHeaders: map[string]string{"a": "b"}})
		}, "RelayFailed"},
		"no daemon": {func(t *testing.T, r *rig) {
			r.cp.activate = first(&nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: closing(t)})
		}, "PeerUnreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			var got seen
			var r *rig
			r = newRig(t, func(w http.ResponseWriter, req *http.Request) {
				see(t, &r, &got)(w, req)
				_, _ = io.WriteString(w, "answer")
			})
			ref := r.put("some", "", []byte("input"))
			for _, sent := range []struct{ body, want string }{{"", "input"}, {"own body", "own body"}} {
				c.prepare(t, r)
				var body io.Reader
				if sent.body != "" {
					body = strings.NewReader(sent.body)
				}
				if resp := r.do(t, request(t, "POST", withInput, newID(), ref, body)); read(t, resp.Body) != "answer" {
					t.Fatalf("it is answered %d", resp.StatusCode)
				}
				// A body that is in the way of a file is another matter.
				if got.body != sent.want || got.file != "input" {
					t.Errorf("the function saw %+v", got)
				}
			}
			if want := `headstart_ingress_requests_placed_again_total{function="default/video",reason="` + c.reason + `"} 2`; !strings.Contains(metrics(t, r), want) {
				t.Errorf("%s is missing in\n%s", want, metrics(t, r))
			}
			if told := r.cp.told(); told != nil || r.logs.String() != "" {
				t.Errorf("the operator is told %v; the log has %s", told, r.logs)
			}
		})
	}
}

var stopped = problem.New(http.StatusServiceUnavailable, problem.ReasonInstanceStopped, "", "it was stopped")

// firstReady is at an address, or err, when it is first asked, and then where r's instance is.
func firstReady(r *rig, at netip.AddrPort, err error) func(context.Context, string) (netip.AddrPort, error) {
	var asked atomic.Int32
	return func(context.Context, string) (netip.AddrPort, error) {
		if asked.Add(1) == 1 {
			return at, err
		}
		return r.instances.address, nil
	}
}

// A daemon that ends in the handshake, or another node's that has its address by now, gets nothing
// of a request: that is placed again, also with a body that could not be sent twice.
func TestAConnectionThatIsNotSecuredHasNoRequest(t *testing.T) {
	hangsUp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = hangsUp.Close(); <-ended })
	go func() {
		defer close(ended)
		for c, err := hangsUp.Accept(); err == nil; c, err = hangsUp.Accept() {
			_ = c.Close()
		}
	}()
	strange, _ := peertlstest.New(t).Load(t, "edge-3", localhost)
	another := httptest.NewUnstartedServer(http.NotFoundHandler())
	another.Listener = tls.NewListener(another.Listener, strange)
	another.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	another.Start()
	t.Cleanup(another.Close)
	p := newPair(t, nil)
	p.gateway.instances.run(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) })
	body := strings.Repeat("x", 2*proxy.BodyKept)
	for _, at := range []net.Addr{hangsUp.Addr(), another.Listener.Addr()} {
		p.gateway.cp.activate = first(&nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: at.String()})
		resp := p.gateway.do(t, request(t, "POST", withoutInput, newID(), "", io.MultiReader(strings.NewReader(body))))
		if got := read(t, resp.Body); got != body {
			t.Errorf("it is answered %d, with %d bytes", resp.StatusCode, len(got))
		}
	}
	if told := p.gateway.cp.told(); told != nil {
		t.Errorf("the operator is told %v", told)
	}
}

// The peer says that nobody got the request, and another node's instance gets it.
func TestARequestThatIsHandedBackIsPlacedAgain(t *testing.T) {
	for name, prepare := range map[string]func(p *pair){
		"instance gone": func(p *pair) { p.target.instances.ready = failGone },
		"daemon ends":   func(p *pair) { p.target.instances.ready = neverReady; p.target.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, abort)
			prepare(p)
			var got seen
			p.gateway.instances.run(t, func(w http.ResponseWriter, req *http.Request) {
				see(t, &p.gateway, &got)(w, req)
				_, _ = io.WriteString(w, "answer")
			})
			for _, sent := range []string{"input", strings.Repeat("x", proxy.BodyKept/2)} {
				away, _ := p.gateway.cp.activate(t.Context(), nil)
				p.gateway.cp.activate = first(away)
				ref := p.gateway.put("some", "", []byte("input"))
				p.target.put("some", "", []byte("input"))
				var body io.Reader
				if sent != "input" {
					body = io.MultiReader(strings.NewReader(sent)) // of unknown length
				}
				if resp := p.gateway.do(t, request(t, "POST", withInput, newID(), ref, body)); read(t, resp.Body) != "answer" {
					t.Fatalf("it is answered %d", resp.StatusCode)
				}
				if got.body != sent || got.file != "input" {
					t.Errorf("the function saw %+v", got)
				}
				p.bind(away.GetPeerAddress(), true)
			}
			if here, there := p.gateway.cp.told(), p.target.cp.told(); here != nil || there != nil {
				t.Errorf("the operator is told %v by the gateway's node and %v by the target's", here, there)
			}
		})
	}
}

func failGone(context.Context, string) (netip.AddrPort, error) {
	return netip.AddrPort{}, problem.InstanceGone()
}

// A large body cannot be sent twice: the client learns that nobody got it.
func TestALargeBodyIsNotSentAgain(t *testing.T) {
	p := newPair(t, nil)
	read := make(chan struct{})
	p.target.instances.ready = func(ctx context.Context, id string) (netip.AddrPort, error) {
		<-read
		return failGone(ctx, id)
	}
	large := strings.NewReader(strings.Repeat("x", 4*proxy.BodyKept))
	resp := p.gateway.do(t, request(t, "POST", withoutInput, newID(), "", io.MultiReader(large, after(func() { close(read) }))))
	wantProblem(t, resp, http.StatusServiceUnavailable, "InstanceGone", "")
	if got := resp.Header.Get("x-headstart-undelivered"); got != "InstanceGone" {
		t.Errorf("the header is %q", got)
	}
	if len(p.gateway.cp.asked) != 1 {
		t.Errorf("it was placed %d times", len(p.gateway.cp.asked))
	}
}

// after is an empty reader that tells when it is read.
type after func()

func (a after) Read([]byte) (int, error) { a(); return 0, io.EOF }

// An instance that is gone time and again is told in the end, once.
func TestPlacementsAreLimited(t *testing.T) {
	r := newRig(t, nil)
	r.instances.ready = failGone
	wantProblem(t, r.do(t, request(t, "POST", withoutInput, newID(), "", nil)), http.StatusServiceUnavailable, "InstanceGone", "")
	if n := len(r.cp.asked); n != ingress.Placements {
		t.Errorf("it was placed %d times", n)
	}
	if s := r.logs.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, "InstanceGone") {
		t.Errorf("it is logged as %s", s)
	}
}

// No request waits beyond its deadline for another placement.
func TestPlacementsEndAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t, nil)
		slow := ingress.New(ingress.Config{Node: "edge-1", Functions: r.functions, ControlPlane: r.cp, Instances: r.instances, Metrics: ingress.NewMetrics(newRegistry()), Log: discard})
		defer slow.Close()
		r.change(func(f *nodeapi.Function) { f.ReadyTimeout = durationpb.New(-ingress.Grace + time.Second) })
		r.instances.ready = failGone
		began := time.Now()
		wantProblem(t, call(slow.Gateway(), request(t, "GET", withInput, newID(), "", nil)), http.StatusServiceUnavailable, "InstanceGone", "")
		if waited := time.Since(began); waited > time.Second || len(r.cp.asked) < 2 {
			t.Errorf("it waited %v, for %d placements", waited, len(r.cp.asked))
		}
	})
}

// A daemon that cannot be reached does not hold a request for longer than a placement may
// take, and the answer is why.
func TestUnreachableDaemonsEndPlacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t, nil)
		var placed int
		r.cp.activate = func(ctx context.Context, _ *nodeapi.Activate) (*nodeapi.Bound, error) {
			if placed++; placed > 2 {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return &nodeapi.Bound{Instance: target, Node: "edge-2", PeerAddress: "192.0.2.1:1"}, nil
		}
		lost := roundTripper(func(*http.Request) (*http.Response, error) {
			<-time.After(5 * time.Second)
			return nil, &net.OpError{Op: "dial", Err: context.DeadlineExceeded}
		})
		in := ingress.New(ingress.Config{Node: "edge-1", Functions: r.functions, ControlPlane: r.cp, Instances: r.instances, Peers: lost, Metrics: ingress.NewMetrics(newRegistry()), Log: discard})
		defer in.Close()
		r.change(func(f *nodeapi.Function) { f.ReadyTimeout = durationpb.New(time.Hour) })
		began := time.Now()
		wantProblem(t, call(in.Gateway(), request(t, "GET", withInput, newID(), "", nil)), http.StatusBadGateway, "PeerUnreachable", "")
		if waited := time.Since(began); waited != ingress.Placement || placed != 3 {
			t.Errorf("it waited %v, for %d placements", waited, placed)
		}
	})
}

// An instance that was starting for long, and is gone, does not count against the next.
func TestALongStartIsNoPlacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newNode(t, nil)
		r.change(func(f *nodeapi.Function) { f.ReadyTimeout = durationpb.New(time.Hour) })
		var placed int
		r.instances.ready = func(context.Context, string) (netip.AddrPort, error) {
			if placed++; placed == 1 {
				<-time.After(2 * ingress.Placement)
				return netip.AddrPort{}, problem.InstanceGone()
			}
			return netip.AddrPort{}, stopped
		}
		wantProblem(t, call(r.Gateway(), request(t, "GET", withInput, newID(), "", nil)), http.StatusServiceUnavailable, "InstanceStopped", "")
		if placed < 2 {
			t.Error("it was not placed again")
		}
	})
}

// What a function says of its request, nobody takes for a daemon's word.
func TestAFunctionCannotHandBack(t *testing.T) {
	p := newPair(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("x-headstart-undelivered", "InstanceGone")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "mine")
	})
	resp := p.gateway.do(t, request(t, "GET", withoutInput, newID(), "", nil))
	if body := read(t, resp.Body); body != "mine" || resp.Header.Get("x-headstart-undelivered") != "" {
		t.Errorf("%s, %v", body, resp.Header)
	}
	if n := len(p.gateway.cp.asked); n != 1 {
		t.Errorf("it was placed %d times", n)
	}
}
