package network

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// used is a part of the address space that something on this machine has taken.
type used struct {
	prefix netip.Prefix
	by     string
}

// checkFree refuses a subnet that the machine already uses or routes elsewhere: taking
// it would cut off whoever has it.
func checkFree(subnet netip.Prefix) error {
	taken, err := inUse()
	if err != nil {
		return err
	}
	return conflict(subnet, taken)
}

func conflict(subnet netip.Prefix, taken []used) error {
	for _, u := range taken {
		// The default route goes everywhere and takes nothing.
		if u.prefix.Bits() > 0 && u.prefix.Overlaps(subnet) {
			return fmt.Errorf("subnet %s overlaps %s, %s of this machine; choose another with --subnet",
				subnet, u.prefix, u.by)
		}
	}
	return nil
}

func inUse() ([]used, error) {
	links, err := complete(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing devices: %w", err)
	}
	names := make(map[int]string, len(links))
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	addrs, err := complete(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing addresses: %w", err)
	}
	var all []used
	for _, a := range addrs {
		if p, ok := prefixOf(a.IPNet); ok {
			all = append(all, used{p, "an address on " + names[a.LinkIndex]})
		}
	}
	routes, err := complete(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing routes: %w", err)
	}
	for _, r := range routes {
		if p, ok := prefixOf(r.Dst); ok {
			all = append(all, used{p, "a route through " + names[r.LinkIndex]})
		}
	}
	return all, nil
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil { // a default route
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits).Masked(), ok
}
