package endpoints_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// The daemon serves a listener until its shim ends the connection.
func TestAListenerIsServed(t *testing.T) {
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	d.start(t, listen(t, socket))
	stop := keep(t, socket, l)
	if got := receive(t, d.served); got != mine {
		t.Errorf("served %+v, want %+v", got, mine)
	}
	for range 2 {
		wantAnswer(t, question(t, l), "daemon")
	}
	stop()
	if got := receive(t, d.ended); got != mine {
		t.Errorf("ended %+v, want %+v", got, mine)
	}
	select {
	case o := <-d.served:
		t.Errorf("served %+v again", o)
	default:
	}
}

// The directory of a sandbox's outputs comes with the listener, to each daemon, which does not keep it.
func TestADirectoryOfOutputs(t *testing.T) {
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	has := t.TempDir()
	if err := os.WriteFile(filepath.Join(has, "result"), []byte("it"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(has, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := os.NewFile(uintptr(fd), has)
	t.Cleanup(func() { dir.Close() })
	offer := mine
	offer.Output = dir
	before := open(t)
	leave := keepOffer(t, socket, l, offer)
	for range 2 {
		stop := d.start(t, listen(t, socket))
		got := receive(t, d.served)
		if got.Output == nil || got.Sandbox != mine.Sandbox {
			t.Fatalf("served %+v", got)
		}
		raw, err := got.Output.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/result", fd)); string(b) != "it" || err != nil {
				t.Errorf("%q, %v", b, err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		c := question(t, l)
		wantAnswer(t, c, "daemon")
		c.Close()
		stop()
		receive(t, d.ended)
	}
	leave()
	if after := open(t); after > before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

// A shim that is killed says nothing.
func TestAShimThatIsGoneIsNotServed(t *testing.T) {
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	stop := d.start(t, listen(t, socket))
	before := open(t)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	c := send(t, socket, words(t, mine), int(f.Fd()))
	f.Close()
	receive(t, d.served)
	wantAnswer(t, question(t, l), "daemon")
	c.Close()
	receive(t, d.ended)
	stop() // has closed what it had by its end
	if after := open(t); after > before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
	waiting := question(t, l)
	l.Close() // it is the last one
	if got, err := answer(waiting); err == nil {
		t.Errorf("answered %q by nobody", got)
	}
}

// A shim that ends with the daemon's word still to come is no reason to wait.
func TestTheDaemonEndsWhileItServes(t *testing.T) {
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	stop := d.start(t, listen(t, socket))
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := send(t, socket, words(t, mine), int(f.Fd()))
	silent := send(t, socket, []byte("{")) // has not said all
	receive(t, d.served)
	stop()
	receive(t, d.ended)
	for name, c := range map[string]net.Conn{"served": c, "silent": silent} {
		if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the shim hears %d bytes, %v, want the end", name, n, err)
		}
	}
}

// The daemon hears why a container goes without, and has nothing to serve.
func TestLeft(t *testing.T) {
	socket, d := path(t), newDaemon("daemon")
	stop := d.start(t, listen(t, socket))
	want := mine
	want.Left = "AWS_PROFILE"
	if err := endpoints.Tell(t.Context(), socket, want); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, d.left); got != want {
		t.Errorf("heard %+v, want %+v", got, want)
	}
	stop()
	if err := endpoints.Tell(t.Context(), socket, want); err == nil {
		t.Error("nobody was told")
	}
	if len(d.left)+len(d.served) > 0 {
		t.Errorf("heard %d times more, served %d times", len(d.left), len(d.served))
	}
}

// descriptor is a socket's, which is closed when the test ends.
func descriptor(t *testing.T, of interface{ File() (*os.File, error) }) int {
	t.Helper()
	f, err := of.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return int(f.Fd())
}

func listening(network, address string) func(t *testing.T) int {
	return func(t *testing.T) int {
		l, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return descriptor(t, l.(interface{ File() (*os.File, error) }))
	}
}

func opened(path string) func(t *testing.T) int {
	return func(t *testing.T) int {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return int(f.Fd())
	}
}

func bound(t *testing.T) int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	return fd
}

func connected(t *testing.T) int {
	c, err := net.Dial("tcp", loopback(t).Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return descriptor(t, c.(*net.TCPConn))
}

func datagrams(t *testing.T) int {
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return descriptor(t, c.(*net.UDPConn))
}

func onLoopback(t *testing.T) int { return descriptor(t, loopback(t)) }

// Whatever connects there, the daemon serves a listener on a loopback or nothing, keeps no descriptor, and goes on.
func TestOffersThatAreRefused(t *testing.T) {
	first := listen(t, path(t))
	first.Close() // Go has its own descriptors by now
	long := mine
	long.Name = strings.Repeat("a", endpoints.MessageLimit+1000)
	left := mine
	left.Left = "AWS_PROFILE"
	many := func(n int) (all []func(*testing.T) int) {
		for range n {
			all = append(all, onLoopback)
		}
		return all
	}
	for name, c := range map[string]struct {
		said string
		fds  []func(*testing.T) int
	}{
		"garbage":                        {"\x00\xff\x1b", many(1)},
		"HTTP":                           {"GET / HTTP/1.1\r\nHost: s3\r\n\r\n", nil},
		"another type":                   {`{"sandbox":1}`, many(1)},
		"not an object":                  {`[]`, many(1)},
		"nothing":                        {`{}`, nil},
		"null":                           {`null`, nil},
		"half":                           {`{"sandbox":"a"`, many(1)},
		"too long":                       {string(words(t, long)), many(1)},
		"no descriptor":                  {string(words(t, mine)), nil},
		"a file for a directory":         {string(words(t, mine)), []func(*testing.T) int{onLoopback, opened(os.Args[0])}},
		"a directory for a listener":     {string(words(t, mine)), []func(*testing.T) int{opened("/"), onLoopback}},
		"two descriptors":                {string(words(t, mine)), many(2)},
		"three descriptors":              {string(words(t, mine)), many(3)},
		"as many as there can be":        {string(words(t, mine)), many(253)},
		"a descriptor of one left alone": {string(words(t, left)), many(1)},
		"a file":                         {string(words(t, mine)), []func(*testing.T) int{opened(os.Args[0])}},
		"a directory":                    {string(words(t, mine)), []func(*testing.T) int{opened("/")}},
		"a device":                       {string(words(t, mine)), []func(*testing.T) int{opened(os.DevNull)}},
		"datagrams":                      {string(words(t, mine)), []func(*testing.T) int{datagrams}},
		"a connection":                   {string(words(t, mine)), []func(*testing.T) int{connected}},
		"a socket that does not listen":  {string(words(t, mine)), []func(*testing.T) int{bound}},
		"all addresses":                  {string(words(t, mine)), []func(*testing.T) int{listening("tcp4", ":0")}},
		"all addresses of both kinds":    {string(words(t, mine)), []func(*testing.T) int{listening("tcp", ":0")}},
		"a unix socket":                  {string(words(t, mine)), []func(*testing.T) int{listening("unix", "")}},
	} {
		t.Run(name, func(t *testing.T) {
			socket, d := path(t), newDaemon("daemon")
			stop := d.start(t, listen(t, socket))
			var fds []int
			for _, fd := range c.fds {
				fds = append(fds, fd(t))
			}
			before := open(t)
			bad := send(t, socket, []byte(c.said), fds...)
			// The daemon goes on, also while it refuses.
			if err := endpoints.Tell(t.Context(), socket, left); err != nil {
				t.Error(err)
			}
			receive(t, d.left)
			if n, err := bad.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the shim hears %d bytes, %v, want the end", n, err)
			}
			bad.Close()
			stop()
			select {
			case o := <-d.served:
				t.Errorf("served %+v", o)
			case o := <-d.left:
				t.Errorf("heard %+v", o)
			default:
			}
			if after := open(t); after > before {
				t.Errorf("%d descriptors are open, %d were", after, before)
			}
		})
	}
}

// A shim that says nothing has its connection for Timeout.
func TestAShimThatSaysNothing(t *testing.T) {
	t.Parallel()
	socket, d := path(t), newDaemon("daemon")
	d.start(t, listen(t, socket))
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the shim hears %d bytes, %v, want the end", n, err)
	}
}

// A connection that has ended takes no place among those that the socket may have.
func TestEndedConnectionsTakeNoPlace(t *testing.T) {
	socket, d := path(t), newDaemon("daemon")
	unlimited, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d.start(t, serve.Limit(unlimited, serve.Crowd{All: 1}))
	left := mine
	left.Left = "AWS_PROFILE"
	for range 2 {
		if err := endpoints.Tell(t.Context(), socket, left); err != nil {
			t.Fatal(err)
		}
		receive(t, d.left)
	}
	l := loopback(t)
	for range 2 {
		c := send(t, socket, words(t, mine), descriptor(t, l))
		receive(t, d.served)
		c.Close()
		receive(t, d.ended)
	}
}

// A socket that takes no more connections is the daemon's end, whatever it serves: it starts again.
func TestASocketThatFails(t *testing.T) {
	socket, l, d := path(t), loopback(t), newDaemon("daemon")
	on := listen(t, socket)
	served := make(chan error, 1)
	go func() { served <- endpoints.Serve(context.Background(), d, slog.New(slog.DiscardHandler))(on) }()
	c := send(t, socket, words(t, mine), descriptor(t, l))
	receive(t, d.served)
	on.Close()
	if err := receive(t, served); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
	receive(t, d.ended)
	if n, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the shim hears %d bytes, %v, want the end", n, err)
	}
}

func TestListen(t *testing.T) {
	l, err := endpoints.Listen(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr)
	if !at.IP.Equal(net.IPv4(127, 0, 0, 1)) || at.Port == 0 {
		t.Errorf("it listens on %s", at)
	}
	flags, err := unix.FcntlInt(uintptr(descriptor(t, l)), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("runc would inherit the listener: %v", err)
	}
	for _, namespace := range []string{"/absent", os.Args[0]} {
		if l, err := endpoints.Listen(t.Context(), namespace); err == nil {
			t.Errorf("listens in %s on %s", namespace, l.Addr())
		}
	}
	if l, err := endpoints.Listen(t.Context(), "/absent"); !errors.Is(err, syscall.ENOENT) || l != nil {
		t.Errorf("listens on %v, %v", l, err)
	}
}
