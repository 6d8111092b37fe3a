package streams_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long the machine may take for what takes it milliseconds.
const patience = 30 * time.Second

const sandbox = "default_fire-x_u-1"

// far is an address in a sandbox's network.
var far = netip.MustParseAddrPort("10.0.0.3:5432")

// path is that of a socket.
func path(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return streams.Path(filepath.Join(dir, "node.sock"))
}

// start serves a hub until stop is called, or the test ends.
func start(t *testing.T, socket string, h *streams.Hub) (stop func()) {
	t.Helper()
	l, err := serve.UnixPackets(socket)()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- h.Serve(ctx)(l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func newHub() *streams.Hub { return streams.NewHub(slog.New(slog.DiscardHandler)) }

// keep is a sandbox's side until stop is called, or the test ends.
func keep(t *testing.T, socket string, s *streams.Shim) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		s.Keep(ctx, socket)
	}()
	stop = func() {
		cancel()
		select {
		case <-kept:
		case <-time.After(patience):
			t.Fatal("the shim does not end")
		}
	}
	t.Cleanup(stop)
	return stop
}

// network is a sandbox's: what listens there is elsewhere.
type network struct {
	net.Listener
	asked chan netip.AddrPort
}

func newNetwork(t *testing.T) network {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return network{l, make(chan netip.AddrPort, 1024)}
}

func (n network) dial(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
	n.asked <- at
	return (&net.Dialer{}).DialContext(ctx, "tcp", n.Addr().String())
}

// connected is a connection's two ends.
func connected(t *testing.T, kind string) (here, there net.Conn) {
	t.Helper()
	at := "127.0.0.1:0"
	if kind == "unix" {
		at = path(t)
	}
	l, err := net.Listen(kind, at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial(kind, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{here, there} {
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
	}
	return here, there
}

// within is a time for what takes milliseconds.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func wantRead(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Errorf("read %q, %v, want %q", b, err, want)
	}
}

func say(t *testing.T, c net.Conn, what string) {
	t.Helper()
	if _, err := io.WriteString(c, what); err != nil {
		t.Error(err)
	}
}

// open is how many descriptors the process has.
func open(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// wantOpen waits until the process has as many descriptors as before.
func wantOpen(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(patience); open(t) > before; time.Sleep(time.Millisecond) {
		runtime.GC() // Go keeps the pipes of splice(2) for a while
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, %d before", open(t), before)
		}
	}
}

// meet waits until the sandbox's shim is there.
func meet(t *testing.T, h *streams.Hub) {
	t.Helper()
	if _, err := h.Dial(within(t), sandbox, netip.AddrPort{}); err == nil || errors.Is(err, streams.ErrNoShim) {
		t.Fatal(err)
	}
}
