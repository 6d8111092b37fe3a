package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// doorHost is the door's host part in the nodes' block, beyond the last possible node's.
	doorHost = 250
	// nodeDevice is the platform's, in each node's namespace.
	nodeDevice = "eth0"
	// shapeBurst is what a node's link lets pass at once: a super-packet. shapeQueue may wait for it, 20 ms at
	// 100 Mbit/s, so that a full link delays the measurement of round trips as a switch does.
	shapeBurst, shapeQueue = 64 << 10, 256 << 10
)

// doorOf is the namespace by which a fleet reaches the store.
func doorOf(name string) string { return name + "-door" }

// connectFleet gives each node a link of NodeRate in both directions to the platform's bridge, and the bridge a way to
// the store. Nodes reach each other by their links alone.
//
//	node ── NodeRate ── bridge ── cable ── door's namespace ── emulated link ── store's namespace
func connectFleet(ctx context.Context, c Config, p plan, nodes []network.Node) (_ *topology, err error) {
	t := &topology{name: c.Name, link: process.New(func(process.Exit) {})}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close(ctx))
		}
	}()
	if err := errors.Join(newNamespace(namespaceOf(c.Name)), newNamespace(doorOf(c.Name))); err != nil {
		return nil, err
	}
	door := filepath.Join("/run/netns", doorOf(c.Name))
	a := c.Subnet.Addr().As4()
	at := netip.AddrFrom4([4]byte{a[0], a[1], 0, doorHost})
	if err := cableDoor(c.Name, door, nodes[0].HostVeth); err != nil {
		return nil, fmt.Errorf("connecting the nodes to the store: %w", err)
	}
	if err := t.startLink(ctx, c, p, door); err != nil {
		return nil, err
	}
	errs := []error{
		nsthread.Run(door, func() error {
			return errors.Join(up("cable0", netip.PrefixFrom(at, 24))(), forwardPackets(),
				routes("wan0", p.edge[1].Addr(), host(p.store)))
		}),
		nsthread.Run(p.namespace, func() error {
			return errors.Join(up("lo", host(p.store))(), routes("wan0", p.edge[0].Addr(), c.Subnet))
		}),
	}
	for _, n := range nodes {
		errs = append(errs, shape(n.HostVeth, c.NodeRate), nsthread.Run(n.Namespace, func() error {
			return errors.Join(shape(nodeDevice, c.NodeRate), routes(nodeDevice, at, host(p.store)))
		}))
	}
	return t, errors.Join(errs...)
}

// cableDoor joins the door's namespace to the bridge that a port is of.
func cableDoor(name, door, port string) error {
	neighbour, err := netlink.LinkByName(port)
	if err != nil {
		return err
	}
	ns, err := netns.GetFromPath(door)
	if err != nil {
		return err
	}
	defer ns.Close()
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: doorOf(name), MasterIndex: neighbour.Attrs().MasterIndex},
		PeerName: "cable0", PeerNamespace: netlink.NsFd(int(ns))}
	if err := netlink.LinkAdd(cable); err != nil {
		return err
	}
	return netlink.LinkSetUp(cable)
}

// shape bounds what leaves by a device to a rate in bit/s.
func shape(device string, rate int64) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	bytes := uint64(rate / 8)
	root := netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	err = netlink.QdiscReplace(&netlink.Tbf{QdiscAttrs: root, Rate: bytes, Limit: shapeQueue,
		Buffer: netlink.Xmittime(bytes, shapeBurst)})
	if err != nil {
		return fmt.Errorf("shaping %s: %w", device, err)
	}
	return nil
}
