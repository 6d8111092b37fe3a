// Package network makes one machine look like several nodes: a network namespace for
// each, on a bridge, with routes for their pods. All of it disappears with Close, or
// with the next start after a kill.
package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// cleanupTimeout bounds Close, and the cleanup of a failed Open. What takes long
	// is the kernel tearing down namespaces, tens of milliseconds each.
	cleanupTimeout = 15 * time.Second
	nodeDevice     = "eth0" // in each node's namespace
)

// Network is an open network.
type Network struct {
	// Warning says what the machine could not do, in words for the user. Empty if all
	// went well. Nodes always reach each other and this machine.
	Warning string

	plan *plan
}

// Open makes the network, after removing what a killed instance of the same name left.
// It needs root. On failure nothing is left.
func Open(ctx context.Context, c Config) (*Network, error) {
	p, err := newPlan(c)
	if err != nil {
		return nil, err
	}
	if err := Sweep(ctx, p.name); err != nil {
		return nil, fmt.Errorf("removing an earlier network: %w", err)
	}
	if err := checkFree(p.subnet); err != nil {
		return nil, err
	}
	n := &Network{plan: p}
	if err := n.build(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Nodes returns all nodes in the order of the configuration.
func (n *Network) Nodes() []Node { return n.plan.nodes }

// Node returns the node of that name.
func (n *Network) Node(name string) (Node, bool) {
	for _, node := range n.plan.nodes {
		if node.Name == name {
			return node, true
		}
	}
	return Node{}, false
}

// Gateway is this machine's address as the nodes see it.
func (n *Network) Gateway() netip.Addr { return n.plan.gateway.Addr() }

// Close removes the network and kills whatever still runs in its namespaces. A second
// Close changes nothing.
func (n *Network) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	return Sweep(ctx, n.plan.name)
}

func (n *Network) build(ctx context.Context) error {
	bridge := &netlink.Bridge{LinkAttrs: attrs(n.plan.bridge)}
	bridge.HardwareAddr = n.plan.bridgeMAC()
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("creating bridge %s: %w", n.plan.bridge, err)
	}
	if err := netlink.LinkSetAlias(bridge, plainAlias); err != nil {
		return fmt.Errorf("marking the bridge: %w", err)
	}
	if err := netlink.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(n.plan.gateway)}); err != nil {
		return fmt.Errorf("giving the bridge its address: %w", err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("bringing the bridge up: %w", err)
	}
	for _, node := range n.plan.nodes {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("creating node %s: %w", node.Name, err)
		}
		if err := n.addNode(bridge, node); err != nil {
			return fmt.Errorf("creating node %s: %w", node.Name, err)
		}
	}
	n.Warning = n.plan.reachOutside(ctx)
	return nil
}

func (n *Network) addNode(bridge netlink.Link, node Node) error {
	if err := newNamespace(node.Namespace); err != nil {
		return err
	}
	ns, err := netns.GetFromPath(node.Namespace)
	if err != nil {
		return fmt.Errorf("opening network namespace: %w", err)
	}
	defer ns.Close()
	veth := netlink.NewVeth(attrs(node.HostVeth))
	veth.PeerName, veth.PeerNamespace = nodeDevice, netlink.NsFd(ns)
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("creating veth pair %s: %w", node.HostVeth, err)
	}
	if err := netlink.LinkSetMaster(veth, bridge); err != nil {
		return fmt.Errorf("attaching %s to the bridge: %w", node.HostVeth, err)
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return fmt.Errorf("bringing %s up: %w", node.HostVeth, err)
	}
	if err := n.configureInside(ns, node); err != nil {
		return err
	}
	// The host reaches pods through their node, as other nodes do.
	return addRoute(netlink.RouteAdd, bridge, node.PodSubnet, node.Address)
}

// configureInside gives a node its addresses and routes, in its namespace.
func (n *Network) configureInside(ns netns.NsHandle, node Node) error {
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("talking to the node's network: %w", err)
	}
	defer h.Close()
	for _, device := range []string{"lo", nodeDevice} {
		link, err := h.LinkByName(device)
		if err != nil {
			return fmt.Errorf("finding the node's %s: %w", device, err)
		}
		if device == nodeDevice {
			addr := netip.PrefixFrom(node.Address, blockBits)
			if err := h.AddrAdd(link, &netlink.Addr{IPNet: ipNet(addr)}); err != nil {
				return fmt.Errorf("giving the node its address: %w", err)
			}
		}
		if err := h.LinkSetUp(link); err != nil {
			return fmt.Errorf("bringing the node's %s up: %w", device, err)
		}
	}
	link, err := h.LinkByName(nodeDevice)
	if err != nil {
		return fmt.Errorf("finding the node's %s: %w", nodeDevice, err)
	}
	everywhere := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if err := addRoute(h.RouteAdd, link, everywhere, n.plan.gateway.Addr()); err != nil {
		return err
	}
	for _, other := range n.plan.nodes {
		if other.Name == node.Name {
			continue
		}
		if err := addRoute(h.RouteAdd, link, other.PodSubnet, other.Address); err != nil {
			return err
		}
	}
	// A node forwards for its pods. What /proc/sys/net shows depends on the reader.
	return nsthread.Run(node.Namespace, func() error {
		return setForwarding("1")
	})
}

func attrs(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

func addRoute(add func(*netlink.Route) error, link netlink.Link, to netip.Prefix, via netip.Addr) error {
	err := add(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: via.AsSlice()})
	if err != nil {
		return fmt.Errorf("adding route to %s via %s: %w", to, via, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// newNamespace makes a network namespace and keeps it by a mount at path.
func newNamespace(path string) error {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", namespaceDir, err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return fmt.Errorf("making mount point of the network namespace: %w", err)
	}
	f.Close() // empty
	return nsthread.Run("", func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making network namespace: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting network namespace at %s: %w", path, err)
		}
		return nil
	})
}
