package proxy_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/proxy"
)

// program is one that counts its connections, and those of them that are open.
type program struct {
	*httptest.Server
	opened, open atomic.Int32
}

func newProgram(t *testing.T, answer http.HandlerFunc) *program {
	p := &program{Server: httptest.NewUnstartedServer(answer)}
	p.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			p.opened.Add(1)
			p.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			p.open.Add(-1)
		}
	}
	p.Start()
	t.Cleanup(p.Close)
	return p
}

// post sends a request that cannot be sent twice.
func (p *program) post(t *testing.T, via http.RoundTripper) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL, strings.NewReader("body"))
	if err != nil {
		t.Error(err)
		return
	}
	res, err := via.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
}

// A program's connection is used again when it has stood open for a while, and there are never two of them.
func TestConnectionsAreKept(t *testing.T) {
	says := func(prepare func(http.ResponseWriter)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			prepare(w)
			_, _ = io.WriteString(w, "answer")
		}
	}
	usual := says(func(http.ResponseWriter) {})
	for name, c := range map[string]struct {
		program http.HandlerFunc
		settles time.Duration
		// between two requests
		between func(t *testing.T, k *proxy.Kept, p *program)
		opened  int32
	}{
		"it stands open":                 {usual, 0, func(*testing.T, *proxy.Kept, *program) {}, 1},
		"the next request comes at once": {usual, time.Hour, func(*testing.T, *proxy.Kept, *program) {}, 3},
		"the program says that it closes it": {says(func(w http.ResponseWriter) { w.Header().Set("Connection", "close") }), 0,
			func(*testing.T, *proxy.Kept, *program) {}, 3},
		"the program closes it": {usual, 0, func(t *testing.T, k *proxy.Kept, p *program) {
			p.CloseClientConnections()
			eventually(t, "the end is heard of", func() bool { return k.Idle() == 0 })
		}, 3},
		"nobody calls for long": {usual, 0, func(t *testing.T, k *proxy.Kept, _ *program) {
			eventually(t, "it is closed", func() bool { return k.Idle() == 0 })
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			p, k := newProgram(t, c.program), proxy.NewKept(time.Second, c.settles)
			defer k.Close()
			for n := range 3 {
				if n > 0 {
					c.between(t, k, p)
				}
				p.post(t, k)
				if k.Idle() > 1 {
					t.Errorf("%d connections are kept", k.Idle())
				}
			}
			if got := p.opened.Load(); got != c.opened {
				t.Errorf("%d connections for 3 requests, want %d", got, c.opened)
			}
			eventually(t, "there is one at most", func() bool { return p.open.Load() <= 1 })
		})
	}
}

// Of the connections of requests at the same time one is kept.
func TestOneConnectionIsKept(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	p := newProgram(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-end
		_, _ = io.WriteString(w, "answer")
	})
	k := proxy.NewKept(time.Second, 0)
	defer k.Close()
	var asking sync.WaitGroup
	for range 3 {
		asking.Go(func() { p.post(t, k) })
	}
	for range 3 {
		<-began
	}
	close(end)
	asking.Wait()
	if k.Idle() != 1 || p.opened.Load() != 3 {
		t.Errorf("%d of %d connections are kept", k.Idle(), p.opened.Load())
	}
	eventually(t, "the others are closed", func() bool { return p.open.Load() == 1 })
}

// A request whose connection nobody takes has reached nobody.
func TestAKeptConnectionThatIsNone(t *testing.T) {
	p, k := newProgram(t, func(http.ResponseWriter, *http.Request) {}), proxy.NewKept(time.Second, proxy.Settles)
	p.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	if res, err := k.RoundTrip(r); !proxy.IsDial(err) {
		t.Errorf("%v, %v", res, err)
	}
}
