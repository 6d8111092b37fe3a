//go:build integration

package streams_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// own is the address of the test's sandbox, which no other network has.
var own = netip.MustParseAddr("192.0.2.77")

// namespace is the path of a new network namespace with that address.
func namespace(t *testing.T) (path string) {
	t.Helper()
	paths, over, ended := make(chan string, 1), make(chan struct{}), make(chan error)
	go func() {
		ended <- nsthread.Run("", func() error {
			defer close(paths)
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			address := &netlink.Addr{IPNet: &net.IPNet{IP: own.AsSlice(), Mask: net.CIDRMask(32, 32)}}
			if err := errors.Join(netlink.AddrAdd(lo, address), netlink.LinkSetUp(lo)); err != nil {
				return err
			}
			paths <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
			<-over // the thread is all that has the namespace
			return nil
		})
	}()
	path = <-paths
	t.Cleanup(func() {
		close(over)
		if err := <-ended; err != nil {
			t.Errorf("making a network namespace, which takes root: %v", err)
		}
	})
	if path == "" {
		t.FailNow()
	}
	return path
}

// The daemon has a connection of the sandbox's network, whose address is the sandbox's.
func TestDialInANamespace(t *testing.T) {
	in := namespace(t)
	var l net.Listener
	if err := nsthread.Run(in, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(own, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, h := path(t), newHub()
	start(t, socket, h)
	keep(t, socket, streams.NewShim(sandbox, streams.In(in), streams.ListenIn("")))
	at := netip.MustParseAddrPort(l.Addr().String())
	c, err := h.Dial(within(t), sandbox, at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	there, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	if from, err := netip.ParseAddrPort(there.RemoteAddr().String()); err != nil || from.Addr() != own {
		t.Errorf("it comes from %s, %v", there.RemoteAddr(), err)
	}
	say(t, there, "1")
	wantRead(t, c, "1")
	for _, option := range [][2]int{{unix.IPPROTO_TCP, unix.TCP_NODELAY}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE}} {
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if set, err := unix.GetsockoptInt(int(fd), option[0], option[1]); set == 0 || err != nil {
				t.Errorf("option %v is %d, %v", option, set, err)
			}
		})
	}
	l.Close()
	if _, err := h.Dial(within(t), sandbox, at); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want a refusal", err)
	}
	if _, err := h.Dial(within(t), sandbox, netip.MustParseAddrPort("198.51.100.1:80")); !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("%v, want that nothing leads there", err)
	}
}
