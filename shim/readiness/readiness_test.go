package readiness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long the machine may take for what takes it milliseconds.
const patience = 30 * probeTimeout

func addressOf(t *testing.T, l net.Listener) netip.AddrPort {
	t.Helper()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func TestReadiness(t *testing.T) {
	const asked = 3 // as often as it takes to know that the answer is no
	for name, test := range map[string]struct {
		path    string
		answers []int // the last one is repeated
		ready   bool
	}{
		"connection":                    {path: "", ready: true},
		"200":                           {path: "/healthz", answers: []int{200}, ready: true},
		"204":                           {path: "/healthz?full=1", answers: []int{204}, ready: true},
		"302, whose target is not ours": {path: "/", answers: []int{302}, ready: true},
		"399":                           {path: "/", answers: []int{399}, ready: true},
		"400":                           {path: "/", answers: []int{400}},
		"500":                           {path: "/", answers: []int{500}},
		"503 at first":                  {path: "/", answers: []int{503, 503, 200}, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var requests atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int(requests.Add(1))
				if r.URL.RequestURI() != test.path {
					t.Errorf("asked for %s, want %s", r.URL.RequestURI(), test.path)
				}
				if n > asked {
					cancel()
				}
				w.Header().Set("Location", "http://elsewhere.invalid/")
				w.WriteHeader(test.answers[min(n, len(test.answers))-1])
			}))
			defer server.Close()
			err := Await(ctx, addressOf(t, server.Listener), test.path)
			if ready := err == nil; ready != test.ready {
				t.Errorf("ready %t (%v), want %t", ready, err, test.ready)
			}
			if test.ready && int(requests.Load()) != len(test.answers) {
				t.Errorf("%d requests for %d answers", requests.Load(), len(test.answers))
			}
		})
	}
}

// Before it listens, there is nothing to connect to.
func TestReadyOnceItListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := addressOf(t, l)
	_ = l.Close()
	ready := make(chan error, 1)
	go func() { ready <- Await(t.Context(), addr, "") }()
	l, err = net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := <-ready; err != nil {
		t.Error(err)
	}
}

// A server that accepts and says nothing is not ready, and holds nobody up.
func TestHangingServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan error, 1)
	go func() { ready <- Await(ctx, addressOf(t, l), "/") }()
	c, err := l.Accept() // it has been asked
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	if err := <-ready; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the cancellation", err)
	}
	if err := Await(ctx, addressOf(t, l), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("too late: %v, want the cancellation", err)
	}
}

// Its owner learns what was wrong: most often that it listens elsewhere.
func TestWhyItIsNotReady(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := addressOf(t, l)
	_ = l.Close()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	for want, at := range map[string]struct {
		addr netip.AddrPort
		path string
	}{
		fmt.Sprintf("nothing listens on port %d; a program that listens on 127.0.0.1 only, or on another port, cannot be reached", closed.Port()): {closed, "/"},
		"GET /healthz is answered by 404": {addressOf(t, server.Listener), "/healthz"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), probeTimeout)
		err := Await(ctx, at.addr, at.path)
		cancel()
		var not *NotReadyError
		if !errors.As(err, &not) || not.Because != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it says %v, want: %s", err, want)
		}
	}
}
