//go:build integration

package endpoints_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// namespace is the path of a new network namespace, whose loopback is down.
func namespace(t *testing.T) string {
	t.Helper()
	paths, over, ended := make(chan string, 1), make(chan struct{}), make(chan error)
	go func() {
		ended <- nsthread.Run("", func() error {
			defer close(paths)
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			paths <- fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
			<-over // the thread is all that has the namespace
			return nil
		})
	}()
	path := <-paths
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

// up sets the namespace's loopback up.
func up(t *testing.T, namespace string) {
	t.Helper()
	if err := nsthread.Run(namespace, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	}); err != nil {
		t.Fatal(err)
	}
}

// joined gives the namespace an address, as CNI does: from then on the kernel knows which addresses are its own.
func joined(t *testing.T, namespace string) {
	t.Helper()
	if err := nsthread.Run(namespace, func() error {
		veth := netlink.NewVeth(netlink.LinkAttrs{Name: "eth0", TxQLen: -1})
		veth.PeerName = "eth1"
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		own := &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(192, 0, 2, 1), Mask: net.CIDRMask(24, 32)}}
		return errors.Join(netlink.AddrAdd(veth, own), netlink.LinkSetUp(veth))
	}); err != nil {
		t.Fatal(err)
	}
}

// askFrom is ask of a program in a namespace.
func askFrom(namespace string, l *net.TCPListener) (c net.Conn, err error) {
	err = nsthread.Run(namespace, func() (err error) {
		c, err = ask(l)
		return err
	})
	return c, err
}

// A listener that is there before the namespace's loopback is up is reached from within, and from nowhere else.
func TestListenOnALoopbackThatIsDown(t *testing.T) {
	hasten(t, time.Millisecond, time.Hour)
	socket, d := path(t), newDaemon("daemon")
	own, other := namespace(t), namespace(t)
	joined(t, own)
	up(t, other)
	l, err := endpoints.Listen(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if at := l.Addr().(*net.TCPAddr); !at.IP.Equal(net.IPv4(127, 0, 0, 1)) || at.Port == 0 {
		t.Errorf("it listens on %s", at)
	}
	keep(t, socket, l)
	if c, err := askFrom(own, l); err == nil {
		c.Close()
		t.Error("the loopback is up")
	}
	up(t, own)
	waiting, err := askFrom(own, l)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	d.start(t, listen(t, socket))
	wantAnswer(t, waiting, "daemon")
	for name, namespace := range map[string]string{"another sandbox": other, "the node": ""} {
		c, err := askFrom(namespace, l)
		if err == nil {
			// Another program of the node may have the same port.
			by, _ := answer(c)
			c.Close()
			if by == "daemon" || namespace != "" {
				t.Errorf("from %s: answered %q", name, by)
			}
		} else if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("from %s: %v", name, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// Each sandbox reaches its own endpoint.
func TestNamespacesAreApart(t *testing.T) {
	hasten(t, time.Millisecond, time.Hour)
	for _, name := range []string{"first", "second"} {
		own := namespace(t)
		up(t, own)
		l, err := endpoints.Listen(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		socket, d := path(t), newDaemon(name)
		d.start(t, listen(t, socket))
		keep(t, socket, l)
		c, err := askFrom(own, l)
		if err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, c, name)
		c.Close()
	}
}

// The thread that has listened in a namespace is none of the others': the shim's own connections stay the node's.
func TestListenLeavesNoThreadBehind(t *testing.T) {
	own := namespace(t)
	for range 8 {
		l, err := endpoints.Listen(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		here, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		if there, err := os.Readlink(own); err != nil || here == there {
			t.Errorf("this thread is in %s: %v", here, err)
		}
	}
}
