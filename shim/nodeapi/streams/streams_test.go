package streams_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/ktls/plaintext"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// The shim dials in its network for the daemon, several at a time, and before the daemon knows it.
func TestDial(t *testing.T) {
	socket, n, h := path(t), newNetwork(t), newHub()
	start(t, socket, h)
	before := open(t)
	const all = 20
	var dialling sync.WaitGroup
	conns := make([]net.Conn, all)
	for i := range conns {
		dialling.Go(func() {
			var err error
			if conns[i], err = h.Dial(within(t), sandbox, far); err != nil {
				t.Error(err)
			}
		})
	}
	stop := keep(t, socket, streams.NewShim(sandbox, n.dial, streams.ListenIn("")))
	for i := range all {
		c, err := n.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if at := <-n.asked; at != far {
			t.Errorf("dialled %s", at)
		}
		say(t, c, fmt.Sprint(i%10))
		c.Close()
	}
	dialling.Wait()
	var said []string
	for _, c := range conns {
		b, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		said = append(said, string(b))
		c.Close()
	}
	if slices.Sort(said); strings.Join(said, "") != "00112233445566778899" {
		t.Errorf("heard %q", said)
	}
	stop()
	wantOpen(t, before)
}

// The daemon hears by the system's error what went wrong.
func TestDialFails(t *testing.T) {
	socket, h := path(t), newHub()
	start(t, socket, h)
	for name, tt := range map[string]struct {
		dial streams.Dial
		want error
	}{
		"refused": {func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
		}, syscall.ECONNREFUSED},
		"slow": {func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, syscall.ETIMEDOUT},
		"without a network": {streams.HostNetwork, nil},
	} {
		t.Run(name, func(t *testing.T) {
			keep(t, socket, streams.NewShim(name, tt.dial, streams.ListenIn("")))
			ctx, cancel := within(t), func() {}
			if name == "slow" {
				ctx, cancel = context.WithTimeout(ctx, time.Second)
			}
			defer cancel()
			_, err := h.Dial(ctx, name, far)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := h.Dial(ctx, "another", far); !errors.Is(err, streams.ErrNoShim) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v of a sandbox without a shim", err)
	}
}

// The shim dials nothing within the node or the sandbox, whatever the daemon asks for.
func TestAttackOfTheDaemonByAddresses(t *testing.T) {
	socket, n, h := path(t), newNetwork(t), newHub()
	start(t, socket, h)
	keep(t, socket, streams.NewShim(sandbox, n.dial, streams.ListenIn("")))
	for _, at := range []string{"127.0.0.1:80", "127.8.8.8:80", "[::1]:80", "[::ffff:127.0.0.1]:80", "0.0.0.0:80", "[::]:80",
		"0.1.2.3:80", "169.254.169.254:80", "[fe80::1]:80", "[fe80::1%eth0]:80", "224.0.0.1:80", "[ff02::1]:80",
		"255.255.255.255:80", "10.0.0.3:0", "[::ffff:169.254.169.254]:80"} {
		if c, err := h.Dial(within(t), sandbox, netip.MustParseAddrPort(at)); err == nil {
			t.Errorf("connected to %s", at)
			c.Close()
		}
	}
	if len(n.asked) > 0 {
		t.Errorf("dialled %s", <-n.asked)
	}
}

// Joined streams pass bytes and ends on, without the daemon and without the conversation.
func TestJoinedStreamsOutliveTheDaemon(t *testing.T) {
	for _, kind := range []string{"tcp4", "unix"} {
		t.Run(kind, func(t *testing.T) {
			t.Cleanup(streams.Hasten(time.Millisecond))
			socket, h := path(t), newHub()
			before := open(t)
			stop := start(t, socket, h)
			stopShim := keep(t, socket, streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn("")))
			program, client := connected(t, kind)
			server, database := connected(t, "tcp4")
			if err := h.Join(within(t), sandbox, client, server); err != nil {
				t.Fatal(err)
			}
			client.Close()
			server.Close()
			stop()
			say(t, program, "select 1")
			wantRead(t, database, "select 1")
			say(t, database, "1")
			wantRead(t, program, "1")
			next := newHub()
			stop = start(t, socket, next)
			if err := next.Join(within(t), sandbox, program, program); err != nil {
				t.Errorf("the next daemon: %v", err) // that of a stream with itself, which ends with the sandbox
			}
			if err := program.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(database); len(b) > 0 || err != nil {
				t.Errorf("%q, %v, want the end", b, err)
			}
			say(t, database, "good bye")
			database.Close()
			stopShim()
			program.Close()
			stop()
			wantOpen(t, before)
		})
	}
}

// Much passes both ways at the same time, and a reset arrives as a reset.
func TestJoinedStreams(t *testing.T) {
	socket, h := path(t), newHub()
	start(t, socket, h)
	keep(t, socket, streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn("")))
	meet(t, h)
	before := open(t)
	program, client := connected(t, "tcp4")
	server, database := connected(t, "tcp4")
	if err := h.Join(within(t), sandbox, client, server); err != nil {
		t.Fatal(err)
	}
	client.Close()
	server.Close()
	much := strings.Repeat("0123456789abcdef", 1<<18)
	var passing sync.WaitGroup
	for _, way := range [][2]net.Conn{{program, database}, {database, program}} {
		passing.Go(func() { say(t, way[0], much) })
		passing.Go(func() { wantRead(t, way[1], much) })
	}
	passing.Wait()
	if err := program.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	program.Close()
	if _, err := io.ReadAll(database); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
	database.Close()
	wantOpen(t, before)
}

// A sandbox that ends takes its streams with it, whatever their servers do.
func TestStreamsEndWithTheSandbox(t *testing.T) {
	socket, h := path(t), newHub()
	start(t, socket, h)
	stop := keep(t, socket, streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn("")))
	program, client := connected(t, "tcp4")
	server, database := connected(t, "tcp4")
	if err := h.Join(within(t), sandbox, client, server); err != nil {
		t.Fatal(err)
	}
	client.Close()
	server.Close()
	say(t, program, "bye")
	program.Close()
	stop()
	wantRead(t, database, "bye")
	if b, err := io.ReadAll(database); len(b) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", b, err)
	}
}

// What is no stream is not joined, and neither is one too many.
func TestAttackOfTheDaemonByStreams(t *testing.T) {
	socket, h := path(t), newHub()
	start(t, socket, h)
	keep(t, socket, streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn("")))
	meet(t, h)
	before := open(t)
	here, there := connected(t, "tcp4")
	packets, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	l := newNetwork(t)
	for _, c := range []any{packets, l.Listener} {
		if err := h.Join(within(t), sandbox, fileConn{here, c}, there); err == nil || errors.Is(err, streams.ErrUnclear) {
			t.Errorf("joined %T: %v", c, err)
		}
	}
	for range streams.StreamsLimit {
		if err := h.Join(within(t), sandbox, here, there); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Join(within(t), sandbox, here, there); err == nil || errors.Is(err, streams.ErrUnclear) {
		t.Errorf("one more: %v", err)
	}
	packets.Close()
	l.Close()
	for _, c := range []net.Conn{here, there} {
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	wantOpen(t, before)
}

// fileConn has another's descriptor.
type fileConn struct {
	net.Conn
	of any
}

func (c fileConn) File() (*os.File, error) {
	return c.of.(interface{ File() (*os.File, error) }).File()
}

// A program's connection is asked about, if it is to a target: the daemon has the other end of what the program has.
func TestConnect(t *testing.T) {
	t.Cleanup(streams.Hasten(time.Millisecond))
	socket, h := path(t), newHub()
	other := netip.MustParseAddrPort("10.0.0.4:6379")
	h.Connect = func(_ context.Context, of string, at netip.AddrPort, ahead bool) (func(net.Conn), error) {
		switch {
		case of != sandbox:
			t.Errorf("sandbox %q", of)
		case at == other || ahead:
			return nil, nil
		case at != far:
			return nil, errors.New("none")
		}
		return func(program net.Conn) {
			say(t, program, "a session")
			program.Close()
		}, nil
	}
	lapses := make(chan string, 8)
	h.Lapse = func(of, reason, why string) { lapses <- of + ": " + reason + ": " + why }
	s := streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn(""))
	if connect, err := s.Connect(within(t), far); connect != nil || err != nil || s.Targets(far) {
		t.Errorf("%v, without a daemon", err)
	}
	six := netip.MustParseAddrPort("[2001:db8::1]:1")
	h.Targets(sandbox, []netip.AddrPort{far, other, six})
	before := open(t)
	stop := start(t, socket, h)
	keep(t, socket, s)
	eventually(t, func() bool { return s.Targets(netip.AddrPortFrom(netip.MustParseAddr("::ffff:10.0.0.3"), 5432)) })
	// A program that connects to where it is connected means the same target.
	at := far
	for range 2 {
		connect, err := s.Connect(within(t), at)
		if connect == nil || err != nil {
			t.Fatalf("%s is not taken: %v", at, err)
		}
		c, err := program(t, unix.AF_INET, connect)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); string(b) != "a session" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		at = netip.MustParseAddrPort(c.RemoteAddr().String())
		if !at.Addr().IsLoopback() || !s.Targets(at) {
			t.Errorf("%s is no target", at)
		}
		c.Close()
	}
	if connect, err := s.Connect(within(t), other); connect != nil || err != nil {
		t.Errorf("%v, want to pass", err)
	}
	if connect, err := s.Connect(within(t), six); connect != nil || err == nil {
		t.Errorf("%v, want the daemon's error", err)
	}
	h.Targets(sandbox, []netip.AddrPort{other})
	eventually(t, func() bool { return s.Targets(other) && !s.Targets(far) && !s.Targets(at) })
	s.Lapse("ConnectUnavailable", "no kernel")
	if got := <-lapses; got != sandbox+": ConnectUnavailable: no kernel" {
		t.Errorf("heard %q", got)
	}
	stop()
	eventually(t, func() bool { return !s.Targets(other) })
	start(t, socket, h)
	<-lapses // the next daemon hears of it, too
	eventually(t, func() bool { return s.Targets(other) })
	wantOpen(t, before+3+1) // of the listener, the conversation, and the target's listener
}

// program is a program's socket that the shim connects, before its connect(2) goes on.
func program(t *testing.T, family int, connect func(socket int)) (net.Conn, error) {
	t.Helper()
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "program")
	defer f.Close() // the connection has a copy
	connect(fd)
	var to unix.Sockaddr = &unix.SockaddrInet4{Addr: far.Addr().As4(), Port: int(far.Port())}
	if family == unix.AF_INET6 {
		to = &unix.SockaddrInet6{Addr: netip.MustParseAddr("2001:db8::1").As16(), Port: 1}
	}
	if err := unix.Connect(fd, to); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// connections are those that a daemon takes.
type connections chan net.Conn

func (c connections) take(program net.Conn) { c <- program }

// next returns the next one; nil: one has not come.
func (c connections) next(t *testing.T) net.Conn {
	t.Helper()
	select {
	case program := <-c:
		return program
	case <-time.After(patience):
		t.Fatal("nothing comes")
		return nil
	}
}

// The sockets of IPv6 are connected by IPv6, if they are to such addresses. What cannot be connected stays as it was, and the
// daemon is told that nothing comes.
func TestSocketsOfPrograms(t *testing.T) {
	socket, h := path(t), newHub()
	came := make(connections, 8)
	h.Connect = func(_ context.Context, _ string, _ netip.AddrPort, ahead bool) (func(net.Conn), error) {
		if ahead {
			return nil, nil
		}
		return came.take, nil
	}
	six := netip.MustParseAddrPort("[2001:db8::1]:1")
	h.Targets(sandbox, []netip.AddrPort{far, six})
	start(t, socket, h)
	s := streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn(""))
	keep(t, socket, s)
	eventually(t, func() bool { return s.Targets(far) && s.Targets(six) })
	for name, tt := range map[string]struct {
		family int
		to     netip.AddrPort
		only   bool // IPV6_V6ONLY
		peer   string
	}{
		"IPv4": {unix.AF_INET, far, false, "127.0.0.1"}, "IPv4 by IPv6": {unix.AF_INET6, far, false, "127.0.0.1"},
		"IPv6": {unix.AF_INET6, six, true, "::1"},
		// connect(2) says what is wrong.
		"IPv4 by IPv6 only": {unix.AF_INET6, far, true, ""}, "IPv6 by IPv4": {unix.AF_INET, six, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			connect, err := s.Connect(within(t), tt.to)
			if err != nil {
				t.Fatal(err)
			}
			var own error
			c, err := program(t, tt.family, func(fd int) {
				if tt.only {
					own = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
				}
				connect(fd)
				info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
				if tt.peer == "" && (err != nil || info.State != unix.BPF_TCP_CLOSE) {
					t.Errorf("%v, %v, want a new socket", info, err)
				}
			})
			if own != nil {
				t.Fatal(own)
			}
			theirs := came.next(t)
			if tt.peer == "" {
				if theirs != nil || c != nil {
					t.Errorf("connected by %v", theirs)
				}
				return
			}
			if err != nil || theirs == nil {
				t.Fatal(err)
			}
			defer c.Close()
			defer theirs.Close()
			say(t, c, "a")
			wantRead(t, theirs, "a")
			if at := netip.MustParseAddrPort(c.RemoteAddr().String()); at.Addr().Unmap().String() != tt.peer {
				t.Errorf("the peer is %s", at)
			}
		})
	}
}

// rekeys is a kernel's stream whose server has changed its keys.
type rekeys struct{ net.Conn }

func (rekeys) Read([]byte) (int, error)    { return 0, fmt.Errorf("reading: %w", plaintext.ErrRekeyed) }
func (rekeys) Write(b []byte) (int, error) { return len(b), nil }
func (rekeys) CloseWrite() error           { return nil }
func (rekeys) Close() error                { return nil }

// The end of a stream whose server has changed its keys is an error for the program, and is counted.
func TestAServerChangesItsKeys(t *testing.T) {
	socket, h := path(t), newHub()
	heard := make(chan struct{}, 1)
	h.Rekeyed = func() { heard <- struct{}{} }
	h.Targets(sandbox, []netip.AddrPort{far})
	start(t, socket, h)
	s := streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn(""))
	keep(t, socket, s)
	eventually(t, func() bool { return s.Targets(far) })
	here, program := connected(t, "tcp")
	s.Join(here.(*net.TCPConn), rekeys{})
	if n, err := program.Read(make([]byte, 1)); n > 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d, %v", n, err)
	}
	<-heard
}

// A sandbox in whose network nothing can be connected asks the daemon nothing, and its programs connect on their own.
func TestConnectWithoutALoopback(t *testing.T) {
	socket, h := path(t), newHub()
	h.Connect = func(context.Context, string, netip.AddrPort, bool) (func(net.Conn), error) {
		t.Error("the daemon is asked")
		return nil, nil
	}
	start(t, socket, h)
	for name, listen := range map[string]streams.Listen{"no network": nil, "an absent one": streams.ListenIn("/absent/namespace")} {
		s := streams.NewShim(name, streams.HostNetwork, listen)
		h.Targets(name, []netip.AddrPort{far})
		keep(t, socket, s)
		if _, err := h.Dial(within(t), name, far); err == nil || errors.Is(err, streams.ErrNoShim) {
			t.Fatal(err)
		}
		if connect, err := s.Connect(within(t), far); connect != nil || err != nil || s.Targets(far) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// While a daemon is replaced, the sandbox's shim serves both; the program's connections are the newer one's.
func TestTheNextDaemon(t *testing.T) {
	socket, n, first, second, third := path(t), newNetwork(t), newHub(), newHub(), newHub()
	first.Connect = func(_ context.Context, _ string, _ netip.AddrPort, ahead bool) (func(net.Conn), error) {
		if !ahead {
			t.Error("a program's connection is for the daemon before")
		}
		return nil, nil
	}
	first.Targets(sandbox, []netip.AddrPort{netip.MustParseAddrPort("10.0.0.9:1")})
	stopFirst := start(t, socket, first)
	s := streams.NewShim(sandbox, n.dial, streams.ListenIn(""))
	before := open(t)
	stop := keep(t, socket, s)
	meet(t, first)
	asked := make(chan string, 8)
	second.Connect = func(_ context.Context, _ string, at netip.AddrPort, ahead bool) (func(net.Conn), error) {
		if !ahead {
			asked <- at.String()
		}
		return nil, nil
	}
	second.Targets(sandbox, []netip.AddrPort{far})
	stopSecond := start(t, socket, second) // it takes the path
	meet(t, second)
	eventually(t, func() bool { return s.Targets(far) })
	first.Targets(sandbox, nil)
	meet(t, first)
	if _, err := s.Connect(within(t), far); err != nil || <-asked != far.String() {
		t.Error(err)
	}
	here, there := connected(t, "tcp4")
	if err := first.Join(within(t), sandbox, here, here); err != nil {
		t.Error(err)
	}
	here.Close()
	there.Close()
	stopFirst()
	meet(t, second)
	if !s.Targets(far) {
		t.Error("the end of the daemon before is taken for that of the next one")
	}
	stopThird := start(t, socket, third)
	meet(t, third)
	stop()
	stopThird()
	stopSecond()
	wantOpen(t, before)
}

// The first connection to a target asks nobody, and what is not used is given up.
func TestAhead(t *testing.T) {
	socket, h := path(t), newHub()
	other := netip.MustParseAddrPort("10.0.0.4:6379")
	came := make(connections, 8)
	h.Connect = func(_ context.Context, of string, at netip.AddrPort, ahead bool) (func(net.Conn), error) {
		if !ahead {
			t.Errorf("asked about %s", at)
		}
		return came.take, nil
	}
	stopHub := start(t, socket, h)
	s := streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn(""))
	stop := keep(t, socket, s)
	meet(t, h)
	before := open(t)
	h.Targets(sandbox, []netip.AddrPort{far, other})
	var connect func(int)
	eventually(t, func() bool { connect = s.Ahead(far); return connect != nil })
	c, err := program(t, unix.AF_INET, connect)
	if err != nil {
		t.Fatal(err)
	}
	server := came.next(t)
	say(t, server, "a session")
	wantRead(t, c, "a session")
	c.Close()
	server.Close()
	if s.Ahead(far) != nil {
		t.Error("another one is there")
	}
	eventually(t, func() bool { connect = s.Ahead(other); return connect != nil })
	// What the daemon takes, and is gone: the program's connection ends.
	stopHub()
	if got := came.next(t); got != nil {
		t.Errorf("the daemon that ends is given %v", got)
	}
	if c, err = program(t, unix.AF_INET, connect); err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d, %v, want the end", n, err)
	}
	c.Close()
	stop()
	wantOpen(t, before-3) // of the daemon's listener, and both sides of the conversation
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to pass")
		}
	}
}

// What is not of the protocol ends its conversation, and no other one. A shim that comes again takes the place of
// itself.
func TestOtherShims(t *testing.T) {
	socket, n, h := path(t), newNetwork(t), newHub()
	start(t, socket, h)
	keep(t, socket, streams.NewShim("another", n.dial, streams.ListenIn("")))
	if c, err := h.Dial(within(t), "another", far); err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	before := open(t)
	for name, said := range map[string]string{
		"nobody": `{}`, "no JSON": `sandbox`, "too long": `{"sandbox":"` + strings.Repeat("a", 9<<10) + `"}`, "nothing": "",
	} {
		c := packets(t, socket)
		if _, _, err := c.WriteMsgUnix([]byte(said), unix.UnixRights(0, 1), nil); err != nil {
			t.Fatal(name, err)
		}
		wantEnd(t, c)
	}
	first := packets(t, socket)
	if _, err := first.Write([]byte(`{"sandbox":"` + sandbox + `"}`)); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error)
	go func() {
		_, err := h.Dial(within(t), sandbox, far)
		asked <- err
	}()
	if n, err := first.Read(make([]byte, 1<<10)); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	second := packets(t, socket)
	if _, err := second.Write([]byte(`{"sandbox":"` + sandbox + `"}`)); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; !errors.Is(err, streams.ErrNoShim) {
		t.Errorf("asked of a shim that is replaced: %v", err)
	}
	wantEnd(t, first)
	// One that takes the streams, and goes without a word: nobody knows.
	here, there := connected(t, "tcp4")
	go func() { asked <- h.Join(within(t), sandbox, here, there) }()
	if n, err := second.Read(make([]byte, 1<<10)); n == 0 || err != nil {
		t.Fatal(n, err)
	}
	second.Close()
	if err := <-asked; !errors.Is(err, streams.ErrUnclear) {
		t.Errorf("asked of a shim that goes: %v", err)
	}
	if c, err := h.Dial(within(t), "another", far); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	here.Close()
	there.Close()
	first.Close()
	wantOpen(t, before)
}

// packets is the beginning of a conversation.
func packets(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

func wantEnd(t *testing.T, c *net.UnixConn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d, %v, want the end", n, err)
	}
	c.Close()
}
