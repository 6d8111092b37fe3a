//go:build integration

package streams_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// A program that disconnects what it got in the place of its socket is in its own network: it reaches nothing that
// listens on the daemon's loopback, and nobody there reaches it.
func TestAttackOfTheProgramByItsConnection(t *testing.T) {
	in := namespace(t)
	socket, n, h := path(t), newNetwork(t), newHub()
	took := make(chan net.Conn, 1)
	h.Connect = func(_ context.Context, _ string, _ netip.AddrPort, program net.Conn) (bool, error) {
		took <- program
		return true, nil
	}
	h.Targets(sandbox, []netip.AddrPort{far})
	start(t, socket, h)
	s := streams.NewShim(sandbox, streams.HostNetwork, streams.EndsIn(in))
	keep(t, socket, s)
	eventually(t, func() bool { return s.Targets(far) })
	for range 3 { // the last one is not made ahead
		f, err := s.Connect(within(t), far)
		if err != nil || f == nil {
			t.Fatal(f, err)
		}
		c := <-took
		fd := int(f.Fd()) // from now on it blocks
		disconnect(t, fd)
		at := netip.MustParseAddrPort(n.Addr().String())
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())})
		if !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("connecting to the daemon's loopback: %v", err)
		}
		disconnect(t, fd)
		if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 1)); err != nil {
			t.Fatal(err)
		}
		own, err := unix.Getsockname(fd)
		if err != nil {
			t.Fatal(err)
		}
		listens := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(own.(*unix.SockaddrInet4).Port))
		if other, err := net.DialTimeout("tcp", listens.String(), time.Second); err == nil {
			other.Close()
			t.Errorf("it listens at %s of the daemon's network", listens)
		}
		f.Close()
		c.Close()
	}
}

// disconnect is connect(2) to no address, which makes a socket of TCP a new one.
func disconnect(t *testing.T, fd int) {
	t.Helper()
	raw := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw)), unsafe.Sizeof(raw))
	if errno != 0 {
		t.Fatal(errno)
	}
}
