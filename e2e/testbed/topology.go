package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/linkemu"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// The ports of the S3 server and of Redis.
const (
	StorePort = 7070
	redisPort = 7071
)

// plan is who has which address on the store's side. The store's namespace is the
// cloud's network: the edge reaches everything in the cloud through it.
//
//	edge ── emulated link ── store's namespace ── cable ── cloud
type plan struct {
	namespace string // path of the store's network namespace
	store     netip.Addr
	edge      [2]netip.Prefix // edge's end and the store's end of the emulated link
	cloud     [2]netip.Prefix // cloud's end and the store's end of the cable
}

func planFor(c Config) (plan, error) {
	a := c.Subnet.Addr().As4()
	if c.Subnet.Bits() != 16 || a[1] == 255 {
		return plan{}, fmt.Errorf("the testbed's subnet must be a /16 with room for the next one, not %s", c.Subnet)
	}
	at := func(third, last byte) netip.Addr { return netip.AddrFrom4([4]byte{a[0], a[1] + 1, third, last}) }
	pair := func(third byte) [2]netip.Prefix {
		return [2]netip.Prefix{netip.PrefixFrom(at(third, 1), 30), netip.PrefixFrom(at(third, 2), 30)}
	}
	return plan{namespace: filepath.Join("/run/netns", namespaceOf(c.Name)), store: at(0, 1), edge: pair(1), cloud: pair(2)}, nil
}

func namespaceOf(name string) string { return name + "-store" }

func (p plan) endpoint() netip.AddrPort { return netip.AddrPortFrom(p.store, StorePort) }

func (p plan) redis() netip.AddrPort { return netip.AddrPortFrom(p.store, redisPort) }

// topology is what connect made.
type topology struct {
	name string
	link *process.Group
}

// sweep removes what a testbed that was killed left beside its platform.
func sweep(name string) error {
	for _, namespace := range []string{namespaceOf(name), doorOf(name)} {
		err := netns.DeleteNamed(namespace)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing an earlier network namespace: %w", err)
		}
	}
	return nil
}

// connectTwo makes the store's namespace and the ways to it from edge and cloud.
func connectTwo(ctx context.Context, c Config, p plan, nodes []network.Node) (_ *topology, err error) {
	t := &topology{name: c.Name, link: process.New(func(process.Exit) {})}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close(ctx))
		}
	}()
	byName := map[string]network.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	edge, cloud := byName[Edge], byName[Cloud]
	if err := newNamespace(namespaceOf(c.Name)); err != nil {
		return nil, err
	}
	if err := cable(c.Name, p, cloud); err != nil {
		return nil, fmt.Errorf("connecting the cloud node to the store: %w", err)
	}
	if err := t.startLink(ctx, c, p, edge.Namespace); err != nil {
		return nil, err
	}
	// Between the nodes, too, the way is the emulated link, instead of the platform's
	// own bridge. The node's own address goes along for the answers to find back.
	return t, errors.Join(
		nsthread.Run(p.namespace, func() error {
			return errors.Join(forwardPackets(),
				routes("wan0", p.edge[0].Addr(), host(edge.Address), edge.PodSubnet),
				routes("cable0", p.cloud[0].Addr(), host(cloud.Address), cloud.PodSubnet))
		}),
		nsthread.Run(edge.Namespace, func() error {
			return routes("wan0", p.edge[1].Addr(), host(p.store), host(cloud.Address), cloud.PodSubnet, p.cloud[0].Masked())
		}),
		nsthread.Run(cloud.Namespace, func() error {
			return routes("cable0", p.cloud[1].Addr(), host(p.store), host(edge.Address), edge.PodSubnet, p.edge[0].Masked())
		}),
	)
}

// cable joins the cloud node and the store's namespace by a veth pair.
func cable(name string, p plan, cloud network.Node) error {
	node, err := netns.GetFromPath(cloud.Namespace)
	if err != nil {
		return err
	}
	defer node.Close()
	store, err := netns.GetFromPath(p.namespace)
	if err != nil {
		return err
	}
	defer store.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "cable0", Namespace: netlink.NsFd(int(node))}, PeerName: "cable0", PeerNamespace: netlink.NsFd(int(store))}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	return errors.Join(
		nsthread.Run(cloud.Namespace, up("cable0", p.cloud[0])),
		nsthread.Run(p.namespace, up("cable0", p.cloud[1])),
		nsthread.Run(p.namespace, up("lo", host(p.store))),
	)
}

// newNamespace makes a network namespace by its name.
func newNamespace(name string) error {
	if err := nsthread.Run("", func() error { _, err := netns.NewNamed(name); return err }); err != nil {
		return fmt.Errorf("making the network namespace %s: %w", name, err)
	}
	return nil
}

// up gives a device of a namespace its addresses; it runs inside the namespace.
func up(device string, addrs ...netip.Prefix) func() error {
	return func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(a)}); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(link)
	}
}

// startLink runs the link from a namespace to the store's in a process of its own, which asks for the scheduling that its
// timing needs.
func (t *topology) startLink(ctx context.Context, c Config, p plan, from string) error {
	return t.link.Start(ctx, Link(c.BinDir, linkemu.Config{
		A:     linkemu.End{Namespace: from, Device: "wan0", Address: p.edge[0].String()},
		B:     linkemu.End{Namespace: p.namespace, Device: "wan0", Address: p.edge[1].String()},
		Delay: c.Delay, Rate: c.Rate}))
}

// Downloaded is how many bytes have gone from the store's end over the emulated link, with all headers.
func (b *Bed) Downloaded() (bytes uint64, err error) {
	err = nsthread.Run(filepath.Join("/run/netns", namespaceOf(b.c.Name)), func() error {
		link, err := netlink.LinkByName("wan0")
		if err == nil {
			bytes = link.Attrs().Statistics.TxBytes
		}
		return err
	})
	return bytes, err
}

// Link is the process of an emulated link.
func Link(binDir string, c linkemu.Config) process.Spec {
	end := func(e linkemu.End) string { return strings.Join([]string{e.Namespace, e.Device, e.Address}, ",") }
	ready := &firstWrite{done: make(chan struct{})}
	return process.Spec{Name: "link", Path: filepath.Join(binDir, "linkemu"), Log: ready,
		Args: []string{"-a", end(c.A), "-b", end(c.B), "-delay", c.Delay.String(), "-jitter", c.Jitter.String(), "-wander", c.Wander.String(),
			"-rate", strconv.FormatInt(c.Rate, 10), "-queue", strconv.Itoa(c.QueueLimit), "-seed", strconv.FormatUint(c.Seed, 10)},
		Ready: func(ctx context.Context) error {
			select {
			case <-ready.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
}

// firstWrite waits for a process's first word, which is that it is ready.
type firstWrite struct {
	once sync.Once
	done chan struct{}
}

func (f *firstWrite) Write(b []byte) (int, error) {
	f.once.Do(func() { close(f.done) })
	return len(b), nil
}

func (t *topology) close(ctx context.Context) error {
	t.link.Stop(ctx)
	return sweep(t.name)
}

// routes sends what is for the prefixes by device to the gateway; it runs inside the
// namespace.
func routes(device string, via netip.Addr, prefixes ...netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	for _, p := range prefixes {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(p), Gw: via.AsSlice()}
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("route to %s: %w", p, err)
		}
	}
	return nil
}

func forwardPackets() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
