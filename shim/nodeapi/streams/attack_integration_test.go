//go:build integration

package streams_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// Others in the sandbox's network, as another container of the pod, connect to where its programs are connected: they get
// nothing, and keep no program from its connection.
func TestAttackOfOthersInTheNetwork(t *testing.T) {
	in := namespace(t)
	socket, h := path(t), newHub()
	came := make(connections, 8)
	h.Connect = func(_ context.Context, _ string, _ netip.AddrPort, ahead bool) (func(net.Conn), error) {
		if ahead {
			return nil, nil
		}
		return came.take, nil
	}
	h.Targets(sandbox, []netip.AddrPort{far})
	start(t, socket, h)
	s := streams.NewShim(sandbox, streams.HostNetwork, streams.ListenIn(in))
	keep(t, socket, s)
	eventually(t, func() bool { return s.Targets(far) })
	connects := func() (c net.Conn, err error) {
		t.Helper()
		connect, failed := s.Connect(within(t), far)
		if failed != nil || connect == nil {
			t.Fatal(failed)
		}
		failed = nsthread.Run(in, func() error {
			c, err = program(t, unix.AF_INET, connect)
			return nil
		})
		return c, errors.Join(err, failed)
	}
	wantSession := func() (peer string) {
		t.Helper()
		c, err := connects()
		theirs := came.next(t)
		if err != nil || theirs == nil {
			t.Fatalf("%v, %v", theirs, err)
		}
		say(t, c, "a")
		wantRead(t, theirs, "a")
		c.Close()
		theirs.Close()
		return c.RemoteAddr().String()
	}
	peer := wantSession()
	const strangers = 40                                                               // more than wait
	for _, then := range []func() string{wantSession, func() string { return peer }} { // a program connects, or none does
		var all []net.Conn
		if err := nsthread.Run(in, func() error {
			for range strangers {
				if c, err := (&net.Dialer{Timeout: time.Millisecond}).Dial("tcp", peer); err == nil {
					all = append(all, c)
				}
			}
			return nil
		}); err != nil || len(all) == 0 {
			t.Fatalf("%d strangers, %v", len(all), err)
		}
		if at := then(); at != peer {
			t.Errorf("connected to %s, and to %s before", at, peer)
		}
		for _, c := range all {
			if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a stranger reads %d, %v", n, err)
			}
			c.Close()
		}
	}
	if len(came) > 0 {
		t.Errorf("the daemon has %d more", len(came))
	}
	// Nothing passes on a loopback that is down: then a program's call is its own.
	if err := nsthread.Run(in, func() error {
		lo, err := netlink.LinkByName("lo")
		return errors.Join(err, netlink.LinkSetDown(lo))
	}); err != nil {
		t.Fatal(err)
	}
	if c, err := connects(); !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("%v, %v", c, err)
	}
	if got := came.next(t); got != nil {
		t.Error("the daemon has a connection")
	}
}
