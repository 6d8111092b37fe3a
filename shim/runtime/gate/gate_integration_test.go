//go:build integration

package gate_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
	"github.com/headstart-mesh/headstart/shim/runtime/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	port, other, late = 8080, 9090, 9091
	patience          = 10 * time.Second
)

// addresses are one family's: of the sandbox, of the node, and of others by way of the node.
type addresses struct{ sandbox, node, stranger, daemon string }

var families = map[string]addresses{
	"IPv4": {"10.211.7.2", "10.211.7.1", "10.211.7.9", "10.211.7.8"},
	"IPv6": {"fd11:7::2", "fd11:7::1", "fd11:7::9", "fd11:7::8"},
}

// sandbox is a network namespace with a way to the node, whose path it returns.
func sandbox(t *testing.T) (path string) {
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
	path = <-paths
	t.Cleanup(func() {
		close(over)
		if err := <-ended; err != nil {
			t.Errorf("making a network namespace, which takes root: %v", err)
		}
	})
	ns, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	const outer, inner = "hsgate0", "eth0"
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: outer}, PeerName: inner, PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	if err := netlink.LinkAdd(cable); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(cable) }) // it is gone with the namespace
	// The address from which the node asks: the first one of IPv4, the last one of IPv6.
	v4, v6 := families["IPv4"], families["IPv6"]
	up(t, outer, v4.node, v4.stranger, v4.daemon, v6.stranger, v6.daemon, v6.node)
	if err := nsthread.Run(path, func() error {
		lo, err := netlink.LinkByName("lo")
		return errors.Join(err, netlink.LinkSetUp(lo))
	}); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if err := nsthread.Run(path, func() error { up(t, inner, f.sandbox); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// up gives addresses to a link.
func up(t *testing.T, name string, all ...string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	for _, a := range all {
		at := netip.MustParseAddr(a)
		bits := 24
		if at.Is6() {
			bits = 64
		}
		err = errors.Join(err, netlink.AddrAdd(link, &netlink.Addr{Flags: unix.IFA_F_NODAD,
			IPNet: &net.IPNet{IP: at.AsSlice(), Mask: net.CIDRMask(bits, at.BitLen())}}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// serve takes connections in a network, and closes them.
func serve(t *testing.T, namespace string, ports ...uint16) {
	t.Helper()
	for _, p := range ports {
		var l net.Listener
		err := nsthread.Run(namespace, func() (err error) {
			l, err = net.Listen("tcp", fmt.Sprintf(":%d", p))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				_ = c.Close()
			}
		}()
		t.Cleanup(func() { _ = l.Close(); <-ended })
	}
}

// dial connects within a network, from an address if that is said, as a user.
func dial(namespace, from, to string, port uint16, user int) (err error) {
	failed := nsthread.Run(namespace, func() error {
		// Of this thread alone, which is thrown away.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(user), ^uintptr(0)); errno != 0 {
			return errno
		}
		d := net.Dialer{}
		if from != "" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		var c net.Conn
		if c, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(netip.MustParseAddr(to), port).String()); err == nil {
			_ = c.Close()
		}
		return nil
	})
	return errors.Join(err, failed)
}

type attempt struct {
	what, namespace, from, to string
	port                      uint16
	user                      int
	passes                    bool
}

func (a attempt) check(t *testing.T) {
	t.Helper()
	began := time.Now()
	err := dial(a.namespace, a.from, a.to, a.port, a.user)
	took := time.Since(began)
	if passes := err == nil; passes != a.passes || !passes && took > patience/2 { // a link that has just come up may lose the first packet
		t.Errorf("%s: %v after %s, want that it passes: %t, and else is refused at once", a.what, err, took, a.passes)
	}
}

// Nothing leaves a closed sandbox, and nobody asks its program but the daemon and the node.
func TestAGate(t *testing.T) {
	in := sandbox(t)
	serve(t, in, port, other)
	serve(t, "", late)
	for _, daemons := range [][]netip.Addr{nil, {netip.MustParseAddr(families["IPv4"].daemon), netip.MustParseAddr(families["IPv6"].daemon)}} {
		if err := gate.Close(in, gate.Rules{Port: port, Callers: daemons}); err != nil {
			t.Fatal(err)
		}
		for name, f := range families {
			for _, a := range []attempt{
				{"the node asks the program", "", f.node, f.sandbox, port, 0, true},
				{"a stranger asks the program", "", f.stranger, f.sandbox, port, 0, false},
				{"a daemon with an address of its own", "", f.daemon, f.sandbox, port, 0, daemons != nil},
				{"a stranger asks for metrics", "", f.stranger, f.sandbox, other, 0, true},
				{"the program asks itself", in, "", f.sandbox, port, 0, true},
				{"the program asks others", in, "", f.node, late, 0, false},
				{"as the user of sidecars", in, "", f.node, late, gate.SidecarUser, false},
			} {
				t.Run(fmt.Sprintf("%s/%t/%s", name, daemons != nil, a.what), a.check)
			}
		}
	}
}

// With a sidecar of Istio's, that goes on as before, and the program cannot have it send anything.
func TestAGateBesideASidecar(t *testing.T) {
	in := sandbox(t)
	const outbound, inbound = 15001, 15006
	redirect(t, in, outbound, inbound)
	serve(t, in, port, outbound, inbound)
	serve(t, "", late)
	for name, f := range families {
		before := attempt{"before, by the sidecar", in, "", f.node, late, 0, true}
		t.Run(name+"/"+before.what, before.check)
	}
	if err := gate.Close(in, gate.Rules{Port: port, Sidecar: true}); err != nil {
		t.Fatal(err)
	}
	for name, f := range families {
		for _, a := range []attempt{
			{"the node asks by the sidecar", "", f.node, f.sandbox, port, 0, true},
			{"a stranger asks by the sidecar", "", f.stranger, f.sandbox, port, 0, false},
			{"the sidecar asks others", in, "", f.node, late, gate.SidecarUser, true},
			{"the sidecar asks the program", in, "", f.sandbox, port, gate.SidecarUser, true},
			{"the program asks others", in, "", f.node, late, 0, false},
			{"the program asks the sidecar", in, "", f.sandbox, outbound, 0, false},
		} {
			t.Run(name+"/"+a.what, a.check)
		}
	}
}

// redirect has all connections pass a sidecar, but its own, as Istio's rules do.
func redirect(t *testing.T, namespace string, outbound, inbound uint16) {
	t.Helper()
	ns, err := os.Open(namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "istio"})
	tcp := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
	}
	to := func(port uint16) []expr.Any {
		return []expr.Any{
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Redir{RegisterProtoMin: 1, RegisterProtoMax: 1, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
		}
	}
	others := []expr.Any{
		&expr.Meta{Key: expr.MetaKeySKUID, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(gate.SidecarUser)},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)},
	}
	out := c.AddChain(&nftables.Chain{Table: table, Name: "out", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	in := c.AddChain(&nftables.Chain{Table: table, Name: "in", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: append(append(others, tcp...), to(outbound)...)})
	c.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: append(tcp[:2:2], to(inbound)...)})
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}
