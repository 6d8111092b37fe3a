package ingress_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// h2c are the protocols of a server or client that speaks HTTP/2 without TLS alone.
func h2c() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// runH2 makes function the rig's instance, by HTTP/2 alone.
func (i *instances) runH2(t *testing.T, function http.HandlerFunc) {
	t.Helper()
	s := httptest.NewUnstartedServer(function)
	s.Config.Protocols = h2c()
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	i.address = s.Listener.Addr().(*net.TCPAddr).AddrPort()
}

// gatewayH2 is a gateway whose cluster speaks HTTP/2, with the daemon's server.
func gatewayH2(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	serve.H2C(s.Config)
	s.Start()
	t.Cleanup(s.Close)
	transport := &http.Transport{Protocols: h2c(), DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// grpcLike streams both ways, and says by a trailer how it went.
func grpcLike(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.ProtoMajor != 2 || req.Header.Get("x-headstart-protocol") != "" {
			t.Errorf("it came by %s with %v", req.Proto, req.Header)
		}
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(w, req.Body)
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	}
}

// A gateway talks to the daemon as it would to the function, and so the daemon does.
func TestAFunctionThatSpeaksHTTP2(t *testing.T) {
	r := newRig(t, nil)
	r.instances.runH2(t, grpcLike(t))
	gateway := gatewayH2(t, r.Gateway())
	resp := do(t, gateway, request(t, "POST", withoutInput, newID(), "", io.MultiReader(strings.NewReader("message"))))
	if got := read(t, resp.Body); got != "message" || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%d %q, trailers %v", resp.StatusCode, got, resp.Trailer)
	}
	resp = do(t, gateway, request(t, "POST", withInput, newID(), r.put("some", "", []byte("input")), nil))
	if got := read(t, resp.Body); got != "input" {
		t.Errorf("%d %q", resp.StatusCode, got)
	}
}

// Requests that come together do not share a connection, which the end of one would take from
// the others.
func TestHTTP2RequestsHaveConnectionsOfTheirOwn(t *testing.T) {
	const together = 32
	var mu sync.Mutex
	connections := map[string]bool{}
	var here sync.WaitGroup
	here.Add(together)
	r := newRig(t, nil)
	r.instances.runH2(t, func(w http.ResponseWriter, req *http.Request) {
		here.Done()
		here.Wait()
		_, _ = io.Copy(w, req.Body)
		mu.Lock()
		defer mu.Unlock()
		connections[req.RemoteAddr] = true
	})
	gateway := gatewayH2(t, r.Gateway())
	var sent sync.WaitGroup
	for range together {
		sent.Go(func() {
			resp, err := gateway.Do(request(t, http.MethodPost, withoutInput, newID(), "", io.MultiReader(strings.NewReader("body"))))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "body" {
				t.Errorf("%d %s, %v", resp.StatusCode, body, err)
			}
		})
	}
	sent.Wait()
	if len(connections) != together {
		t.Errorf("%d requests came over %d connections", together, len(connections))
	}
}

// A sidecar passes on the trailers of HTTP/2, and drops those of HTTP/1.1.
func TestAFunctionInTheMeshThatSpeaksHTTP2(t *testing.T) {
	r := newRig(t, nil)
	r.instances.meshSNI = "outbound_.80_._.video.default.svc.cluster.local"
	r.instances.runH2(t, grpcLike(t))
	resp := do(t, gatewayH2(t, r.Gateway()), request(t, "POST", withoutInput, newID(), "", io.MultiReader(strings.NewReader("message"))))
	if got := read(t, resp.Body); got != "message" || resp.Trailer.Get("Grpc-Status") != "0" || len(r.mesh.names) != 1 {
		t.Errorf("%d %q, trailers %v, over the mesh: %v", resp.StatusCode, got, resp.Trailer, r.mesh.names)
	}
}

// Another node's daemon learns what the function speaks.
func TestAFunctionOfAnotherNodeThatSpeaksHTTP2(t *testing.T) {
	p := newPair(t, nil)
	p.target.instances.runH2(t, grpcLike(t))
	resp := do(t, gatewayH2(t, p.gateway.Gateway()), request(t, "POST", withoutInput, newID(), "", io.MultiReader(strings.NewReader("message"))))
	if got := read(t, resp.Body); got != "message" || resp.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%d %q, trailers %v", resp.StatusCode, got, resp.Trailer)
	}
}

// Whoever says what the function speaks, without being a peer, is not believed.
func TestOnlyPeersSayTheProtocol(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, req.Proto) })
	req := request(t, "GET", withoutInput, "", "", nil)
	req.Header.Set("x-headstart-protocol", "h2")
	if got := read(t, r.do(t, req).Body); got != "HTTP/1.1" {
		t.Error(got)
	}
}
