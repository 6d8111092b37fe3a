//go:build integration

package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// insideEnv says that the test binary runs in namespaces of its own: what the tests
// take for the host is not the machine.
const insideEnv = "HST7_NETWORK_INSIDE"

// instance is the tests' own, since processes and /run/netns are the machine's.
const instance = "hstseven"

func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		goleak.VerifyTestMain(m)
		return
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests make network namespaces and need root")
		os.Exit(1)
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Unshareflags: unix.CLONE_NEWNS}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "entering namespaces:", err)
		os.Exit(1)
	}
}

// host is all that a network may leave on the host.
type host struct {
	Devices, Routes, Namespaces, Rules []string
	Forwarding                         string
}

func look(t *testing.T) host {
	t.Helper()
	var h host
	links, err := complete(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		h.Devices = append(h.Devices, l.Attrs().Name)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		h.Routes = append(h.Routes, r.String())
	}
	if h.Namespaces, err = filepath.Glob(namespaceDir + "/" + instance + "-*"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"nat", "filter"} {
		listing, err := iptables(context.Background(), table, "-S")
		if err != nil {
			t.Fatal(err)
		}
		h.Rules = append(h.Rules, strings.Split(listing, "\n")...)
	}
	b, err := os.ReadFile(forwardingFile)
	if err != nil {
		t.Fatal(err)
	}
	h.Forwarding = string(b)
	return h
}

// leavesNothing checks at the test's end that the host is as it was.
func leavesNothing(t *testing.T) {
	t.Helper()
	if err := Sweep(t.Context(), instance); err != nil { // after a killed test
		t.Fatal(err)
	}
	// The first look makes the kernel's filter tables.
	look(t)
	before := look(t)
	t.Cleanup(func() {
		if err := Sweep(context.Background(), instance); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if d := cmp.Diff(before, look(t)); d != "" {
			t.Errorf("the host has changed:\n%s", d)
		}
	})
}

func open(t *testing.T, nodes ...string) *Network {
	t.Helper()
	n, err := Open(t.Context(), Config{Name: instance, Nodes: nodes})
	if err != nil {
		t.Fatal(err)
	}
	if n.Warning != "" {
		t.Errorf("warning: %s", n.Warning)
	}
	return n
}

func closeNetwork(t *testing.T, n *Network) {
	t.Helper()
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// reach listens in one namespace and connects from another; empty is the host.
func reach(t *testing.T, from, to string, addr netip.Addr) {
	t.Helper()
	var l net.Listener
	err := nsthread.Run(to, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	if err != nil {
		t.Errorf("listening on %s in %q: %v", addr, to, err)
		return
	}
	defer l.Close()
	err = nsthread.Run(from, func() error {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		t.Errorf("from %q to %s in %q: %v", from, addr, to, err)
	}
}

// pod gives a node a pod's address, as CNI would.
func pod(t *testing.T, n Node) netip.Addr {
	t.Helper()
	addr := n.PodSubnet.Addr().Next().Next()
	ns, err := netns.GetFromPath(n.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, 32))}); err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestNodesHostAndPodsReachEachOther(t *testing.T) {
	leavesNothing(t)
	n := open(t, "edge", "cloud", "third")
	for _, a := range n.Nodes() {
		podAddr := pod(t, a)
		reach(t, a.Namespace, a.Namespace, netip.MustParseAddr("127.0.0.1"))
		reach(t, a.Namespace, "", n.Gateway())
		reach(t, "", a.Namespace, a.Address)
		reach(t, "", a.Namespace, podAddr)
		for _, b := range n.Nodes() {
			reach(t, b.Namespace, a.Namespace, a.Address)
			reach(t, b.Namespace, a.Namespace, podAddr)
		}
		var forwarding []byte
		err := nsthread.Run(a.Namespace, func() (err error) {
			forwarding, err = os.ReadFile(forwardingFile)
			return err
		})
		if string(forwarding) != "1\n" || err != nil {
			t.Errorf("%s forwards: %q, %v", a.Name, forwarding, err)
		}
		if got, ok := n.Node(a.Name); !ok || got.Namespace != a.Namespace {
			t.Errorf("node %s: %+v, %v", a.Name, got, ok)
		}
	}
	if _, ok := n.Node("nobody"); ok {
		t.Error("an unknown node was found")
	}
	closeNetwork(t, n)
}

// The outside world knows nothing of the nodes' addresses: without masquerade no
// answer comes back.
func TestNodesReachTheOutside(t *testing.T) {
	leavesNothing(t)
	path := filepath.Join(namespaceDir, "hstworld-internet")
	if err := newNamespace(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := removeNamespace(path); err != nil {
			t.Error(err)
		}
	})
	world, err := netns.GetFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	defer world.Close()
	veth := netlink.NewVeth(attrs("hst7up"))
	veth.PeerName, veth.PeerNamespace = "eth0", netlink.NsFd(world)
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(veth); err != nil {
			t.Error(err)
		}
	})
	there, err := netlink.NewHandleAt(world)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	eth, err := there.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	outside := netip.MustParsePrefix("203.0.113.2/24") // TEST-NET-3
	err = errors.Join(
		netlink.AddrAdd(veth, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("203.0.113.1/24"))}),
		netlink.LinkSetUp(veth),
		there.AddrAdd(eth, &netlink.Addr{IPNet: ipNet(outside)}),
		there.LinkSetUp(eth),
	)
	if err != nil {
		t.Fatal(err)
	}
	n := open(t, "edge")
	edge, _ := n.Node("edge")
	reach(t, edge.Namespace, path, outside.Addr())
	closeNetwork(t, n)
}

func TestAKilledInstanceIsSweptAway(t *testing.T) {
	leavesNothing(t)
	first := open(t, "edge", "cloud")
	edge, _ := first.Node("edge")
	r, w := io.Pipe()
	exits := make(chan process.Exit, 1)
	g := process.New(func(e process.Exit) { exits <- e })
	// What lives on in a namespace ignores polite signals and has children.
	err := g.Start(t.Context(), process.Spec{
		Name: "x", Path: "/bin/sh", NetNS: edge.Namespace, Log: w,
		Args: []string{"-c", `trap "" TERM; setsid sleep 1000 & readlink /proc/self/ns/net; wait; exec sleep 1000`},
	})
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id, err := identify(edge.Namespace)
	if want := fmt.Sprintf("net:[%d]\n", id.ino); line != want || err != nil {
		t.Errorf("the child is in %q, wanted %q (%v)", line, want, err)
	}
	// The second instance knows nothing of the first, has other nodes and addresses.
	second, err := Open(t.Context(), Config{Name: instance, Nodes: []string{"edge"}, Subnet: netip.MustParsePrefix("10.202.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-exits; e.Err == nil || e.Stopping {
		t.Errorf("child: %+v", e)
	}
	if found := inhabitants(t, id); len(found) > 0 {
		t.Errorf("processes %v are still there", found)
	}
	if got := look(t).Namespaces; len(got) != 1 {
		t.Errorf("namespaces %v", got)
	}
	node, _ := second.Node("edge")
	reach(t, "", node.Namespace, node.Address)
	closeNetwork(t, second)
	g.Stop(t.Context())
}

func inhabitants(t *testing.T, id identity) []int {
	t.Helper()
	table, err := process.Table()
	if err != nil {
		t.Fatal(err)
	}
	return inside(map[identity]bool{id: true})(table)
}

func TestHalfMadeRemainsAreSwept(t *testing.T) {
	leavesNothing(t)
	p, err := newPlan(Config{Name: instance, Nodes: []string{"edge"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		t.Fatal(err)
	}
	// Killed between making the file and mounting on it.
	if err := os.WriteFile(p.nodes[0].Namespace, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	// The host's own namespace under our name, and twice: must kill nobody.
	own := filepath.Join(namespaceDir, instance+"-host")
	if err := os.WriteFile(own, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := unix.Mount("/proc/self/ns/net", own, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	veth := netlink.NewVeth(attrs(p.nodes[0].HostVeth))
	veth.PeerName = "hst7peer"
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.addRules(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(t.Context(), instance); err != nil {
		t.Error(err)
	}
}

// interrupted ends when it has been asked a number of times.
type interrupted struct {
	context.Context
	left int
}

func (c *interrupted) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

func TestAnInterruptedOpenLeavesNothing(t *testing.T) {
	leavesNothing(t)
	for asked := range 3 {
		ctx := &interrupted{t.Context(), asked}
		_, err := Open(ctx, Config{Name: instance, Nodes: []string{"one", "two", "three"}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d nodes: %v", asked, err)
		}
	}
}

func TestASubnetOfTheHostIsRefused(t *testing.T) {
	leavesNothing(t)
	other, err := Open(t.Context(), Config{Name: instance, Nodes: []string{"edge"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Config{Name: "hstother", Nodes: []string{"edge"}, Subnet: netip.MustParsePrefix("10.0.0.0/8")})
	if err == nil || !strings.Contains(err.Error(), "--subnet") || !strings.Contains(err.Error(), instance+"-0") {
		t.Errorf("open: %v", err)
	}
	closeNetwork(t, other)
}

// Two instances share the host's ip_forward; the last one puts it back.
func TestTheLastInstanceRestoresForwarding(t *testing.T) {
	// The tests' namespace starts as the machine is, which may forward for others.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	leavesNothing(t)
	first := open(t, "edge")
	second, err := Open(t.Context(), Config{Name: "hstother", Nodes: []string{"edge"}, Subnet: netip.MustParsePrefix("10.202.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	closeNetwork(t, first)
	if f := look(t).Forwarding; f != "1\n" {
		t.Errorf("the second instance lost its forwarding: %q", f)
	}
	closeNetwork(t, second)
	if f := look(t).Forwarding; f != "0\n" {
		t.Errorf("not put back: %q", f)
	}
}

func TestWithoutIptablesNodesStillReachEachOther(t *testing.T) {
	leavesNothing(t)
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	n, err := Open(t.Context(), Config{Name: instance, Nodes: []string{"edge", "cloud"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(n.Warning, "this machine only") || !strings.Contains(n.Warning, "iptables") {
		t.Errorf("warning %q", n.Warning)
	}
	edge, _ := n.Node("edge")
	cloud, _ := n.Node("cloud")
	reach(t, edge.Namespace, cloud.Namespace, cloud.Address)
	closeNetwork(t, n)
	t.Setenv("PATH", path)
}
