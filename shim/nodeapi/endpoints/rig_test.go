package endpoints_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long the machine may take for what takes it milliseconds.
const patience = 30 * time.Second

// mine is the offer of the tests' sandbox.
var mine = endpoints.Offer{Sandbox: "default_fire-x_u-1", Name: "s3"}

// daemon answers each byte that a program sends with its own name.
type daemon struct {
	name                string
	served, ended, left chan endpoints.Offer
}

func newDaemon(name string) *daemon {
	return &daemon{name: name, served: make(chan endpoints.Offer, 64), ended: make(chan endpoints.Offer, 64),
		left: make(chan endpoints.Offer, 64)}
}

func (d *daemon) Left(o endpoints.Offer) { d.left <- o }

func (d *daemon) Serve(ctx context.Context, o endpoints.Offer, l net.Listener) {
	d.served <- o
	defer func() { d.ended <- o }()
	var answering sync.WaitGroup
	defer answering.Wait()
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		answering.Go(func() {
			defer c.Close()
			if _, err := c.Read(make([]byte, 1)); err == nil {
				io.WriteString(c, d.name)
			}
		})
	}
}

// path is that of a socket.
func path(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := endpoints.Path(filepath.Join(dir, "node.sock"))
	if want := filepath.Join(dir, "endpoints.sock"); at != want {
		t.Fatalf("the socket is %s, want %s", at, want)
	}
	return at
}

// listen opens the daemon's socket as the daemon does.
func listen(t *testing.T, socket string) net.Listener {
	t.Helper()
	l, err := serve.Unix(socket)()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start has the daemon take offers until stop is called, or the test ends.
func (d *daemon) start(t *testing.T, l net.Listener) (stop func()) {
	t.Helper()
	return start(t, l, d)
}

func start(t *testing.T, l net.Listener, s endpoints.Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- endpoints.Serve(ctx, s, slog.New(slog.DiscardHandler))(l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// loopback is where a program connects.
func loopback(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// keep is the shim's side, until stop is called, or the test ends.
func keep(t *testing.T, socket string, l *net.TCPListener) (stop func()) {
	t.Helper()
	return keepOffer(t, socket, l, mine)
}

func keepOffer(t *testing.T, socket string, l *net.TCPListener, o endpoints.Offer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		endpoints.Keep(ctx, socket, o, l)
	}()
	stop = func() {
		cancel()
		receive(t, kept)
	}
	t.Cleanup(stop)
	return stop
}

func hasten(t *testing.T, pace, wait time.Duration) { t.Cleanup(endpoints.Hasten(pace, wait)) }

// receive is the next one of c.
func receive[T any](t *testing.T, c <-chan T) (next T) {
	t.Helper()
	select {
	case next = <-c:
	case <-time.After(patience):
		t.Fatal("nothing happens")
	}
	return next
}

// ask is a connection of a program that has asked.
func ask(l *net.TCPListener) (net.Conn, error) {
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	_, err = c.Write([]byte("?"))
	if err = errors.Join(err, c.SetDeadline(time.Now().Add(patience))); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func question(t *testing.T, l *net.TCPListener) net.Conn {
	t.Helper()
	c, err := ask(l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func answer(c net.Conn) (string, error) {
	b, err := io.ReadAll(c)
	return string(b), err
}

func wantAnswer(t *testing.T, c net.Conn, want string) {
	t.Helper()
	if got, err := answer(c); got != want || err != nil {
		t.Errorf("answered %q, %v, want %q", got, err, want)
	}
}

// send is what a shim sends first, with descriptors.
func send(t *testing.T, socket string, said []byte, fds ...int) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := conn.(*net.UnixConn)
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := c.WriteMsgUnix(said, rights, nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func words(t *testing.T, o endpoints.Offer) []byte {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
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
