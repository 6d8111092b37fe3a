package serve_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

const (
	patient = time.Minute
	hasty   = 10 * time.Millisecond
)

func TestUnixIsForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for range 2 { // the second replaces what the first left
		l, err := serve.Unix(path)()
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		t.Cleanup(func() { _ = l.Close() }) // too late to matter, as of a process that was killed
	}
}

// A process may take a path over from one that still runs: connections go to the new one,
// and the old one's end does not take its socket away.
func TestUnixTakesOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := serve.Unix(path)()
	if err != nil {
		t.Fatal(err)
	}
	if serve.TakenOver(first) {
		t.Error("nobody has taken the first over yet")
	}
	second, err := serve.Unix(path)()
	if err != nil {
		t.Fatal(err)
	}
	if !serve.TakenOver(first) || serve.TakenOver(second) {
		t.Error("it is not the second that has the path")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a closed socket is left: %v", err)
	}
}

func TestUnixRemovesNothingButSockets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"something else than a socket": file, "listening": filepath.Join(dir, "none", "s"), "earlier socket": filepath.Join(file, "s")} {
		if _, err := serve.Unix(path)(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file holds %q, %v", b, err)
	}
}

// server is HTTP under way.
type server struct {
	address string
	stop    context.CancelFunc
	ended   chan error
}

func start(t *testing.T, grace time.Duration, h http.HandlerFunc) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	s := &server{address: l.Addr().String(), stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- serve.HTTP(ctx, h, grace, discard)(l) }()
	return s
}

// get sends a request on a connection of its own, and returns the answer's body.
func (s *server) get(header string) (string, error) {
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n"+header+"\r\n"); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

func TestHTTPLetsRequestsEnd(t *testing.T) {
	var s *server
	s = start(t, patient, func(w http.ResponseWriter, r *http.Request) {
		s.stop()
		for s.open() { // the server is ending now
		}
		if r.Context().Err() != nil {
			t.Error("the request is cut off")
		}
		_, _ = io.WriteString(w, "whole")
	})
	if got, err := s.get(""); got != "whole" {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// A request that does not end in time is cut off, and waited for.
func TestHTTPCutsOffWhatIsLate(t *testing.T) {
	for name, handle := range map[string]func(w http.ResponseWriter, begun func()){
		"in the works": func(_ http.ResponseWriter, begun func()) { begun() },
		"hijacked": func(w http.ResponseWriter, begun func()) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			begun()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s *server
			returned := false
			s = start(t, hasty, func(w http.ResponseWriter, r *http.Request) {
				handle(w, func() {
					s.stop()
					<-r.Context().Done()
					time.Sleep(hasty) // some handlers take a moment to return
					returned = true
				})
			})
			if got, err := s.get(""); err == nil {
				t.Errorf("it is answered %q", got)
			}
			if err := <-s.ended; err != nil || !returned {
				t.Errorf("it ended with %v; had the handler returned: %v", err, returned)
			}
		})
	}
}

// A hijacked connection has its time to end, too.
func TestHTTPWaitsForHijackedConnections(t *testing.T) {
	var s *server
	s = start(t, patient, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		s.stop()
		for s.open() { // the server is ending now
		}
		if r.Context().Err() != nil {
			t.Error("the connection is cut off")
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
	})
	if got, err := s.get(""); got != "whole" {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

func (s *server) open() bool {
	conn, err := net.Dial("tcp", s.address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func TestHTTPBoundsHeaders(t *testing.T) {
	s := start(t, patient, func(http.ResponseWriter, *http.Request) {})
	if got, err := s.get("X: " + strings.Repeat("x", 100_000) + "\r\n"); !strings.Contains(got, "431") {
		t.Errorf("%q, %v", got, err)
	}
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

func TestAServerThatFailsSaysSo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := serve.HTTP(t.Context(), http.NotFoundHandler(), patient, discard)(l); err == nil {
		t.Error("HTTP serves a closed listener")
	}
	if err := serve.GRPC(t.Context(), grpc.NewServer())(l); err == nil {
		t.Error("GRPC serves a closed listener")
	}
}

// Servers of one group end together, and the group says why.
func TestAGroupEndsWithTheFirstThatCannotListen(t *testing.T) {
	g, ctx := errgroup.WithContext(t.Context())
	serve.Go(g, serve.TCP("127.0.0.1:0", serve.Own), serve.HTTP(ctx, http.NotFoundHandler(), patient, discard))
	serve.Go(g, serve.TCP("nonsense", serve.Own), serve.GRPC(ctx, grpc.NewServer()))
	if err := g.Wait(); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	if _, err := serve.TLS("nonsense", &tls.Config{})(); err == nil {
		t.Error("it listens on nonsense")
	}
	l, err := serve.TLS("127.0.0.1:0", &tls.Config{})()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{InsecureSkipVerify: true}); err == nil {
		_ = conn.Close()
		t.Error("a listener without certificate speaks TLS")
	}
}

func TestGRPCEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := serve.GRPC(ctx, grpc.NewServer())(l); err != nil {
		t.Error(err)
	}
}

func TestBoundedOutlivesItsContextForAWhile(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := serve.Bounded(ctx, patient, func(ctx context.Context) error { return ctx.Err() }); err != nil {
		t.Error(err)
	}
	err := serve.Bounded(ctx, hasty, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "things_total"})
	registry.MustRegister(c)
	c.Inc()
	s := start(t, patient, serve.Metrics(registry).ServeHTTP)
	resp, err := http.Get("http://" + s.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || !strings.Contains(string(b), "things_total 1") {
		t.Errorf("%s, %v", b, err)
	}
	http.DefaultClient.CloseIdleConnections()
	s.stop()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// HTTP/2 without TLS is taken where it is wanted, beside HTTP/1.
func TestH2C(t *testing.T) {
	for name, c := range map[string]struct {
		options []func(*http.Server)
		h2      bool
	}{"wanted": {[]func(*http.Server){serve.H2C}, true}, "not wanted": {nil, false}} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				ended <- serve.HTTP(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
					time.Second, slog.New(slog.DiscardHandler), c.options...)(l)
			}()
			get := func(h2 bool) string {
				tr := &http.Transport{Protocols: new(http.Protocols)}
				tr.Protocols.SetHTTP1(!h2)
				tr.Protocols.SetUnencryptedHTTP2(h2)
				defer tr.CloseIdleConnections()
				resp, err := (&http.Client{Transport: tr}).Get("http://" + l.Addr().String())
				if err != nil {
					return ""
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body)
				return string(b)
			}
			if got := get(false); got != "HTTP/1.1" {
				t.Errorf("HTTP/1: %q", got)
			}
			if got := get(true); (got == "HTTP/2.0") != c.h2 {
				t.Errorf("HTTP/2: %q", got)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
