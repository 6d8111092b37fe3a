package bed

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/headstart-mesh/headstart/e2e/linkemu"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// wander is how often a path's delay is a new one: often enough that a measurement of
	// 20 s has a hundred, and seldom enough that packets close to each other take as long.
	wander = 200 * time.Millisecond
	// maxLinks is what the links' subnet has room for, with a /30 each in a byte.
	maxLinks = 255
	linkBits = 30
)

// connect puts an emulated link between each two nodes, in place of the bridge.
func (b *Bed) connect(ctx context.Context) error {
	base := b.c.Subnet.Addr().As4()
	if b.c.Subnet.Bits() != 16 || base[1] == 255 {
		return fmt.Errorf("the bed's subnet must be a /16 with room for the next one, not %s", b.c.Subnet)
	}
	number := 0
	for i, a := range b.Nodes {
		for _, z := range b.Nodes[i+1:] {
			if number++; number > maxLinks {
				return fmt.Errorf("%d nodes have more than %d links", len(b.Nodes), maxLinks)
			}
			at := func(last byte) netip.Prefix {
				return netip.PrefixFrom(netip.AddrFrom4([4]byte{base[0], base[1] + 1, byte(number), last}), linkBits)
			}
			if err := b.link(ctx, a, z, at(1), at(2), uint64(number)); err != nil {
				return fmt.Errorf("link between %s and %s: %w", a.Name, z.Name, err)
			}
		}
	}
	return nil
}

func (b *Bed) link(ctx context.Context, a, z Node, near, far netip.Prefix, number uint64) error {
	path := b.c.Path(a.Spec, z.Spec)
	device := func(to Node) string { return "to-" + to.Name }
	spec := testbed.Link(b.c.BinDir, linkemu.Config{
		A: linkemu.End{Namespace: a.Namespace, Device: device(z), Address: near.String()},
		B: linkemu.End{Namespace: z.Namespace, Device: device(a), Address: far.String()},
		// Each way has half of the round trip, and of its variance.
		Delay: path.RTT / 2, Jitter: time.Duration(float64(path.Jitter) / math.Sqrt2), Wander: wander, Seed: b.c.Seed + number,
	})
	spec.Name = "link-" + a.Name + "-" + z.Name
	if err := b.links.Start(ctx, spec); err != nil {
		return err
	}
	if err := nsthread.Run(a.Namespace, func() error { return route(device(z), a, z, far.Addr()) }); err != nil {
		return err
	}
	return nsthread.Run(z.Namespace, func() error { return route(device(a), z, a, near.Addr()) })
}

// route sends what is for a node over the link, under the sender's own address, by which the
// answers find the same way back. It runs inside the sender's namespace.
func route(device string, from, to Node, via netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via.AsSlice(), Src: from.Address.AsSlice(),
		Dst: &net.IPNet{IP: to.Address.AsSlice(), Mask: net.CIDRMask(to.Address.BitLen(), to.Address.BitLen())}})
}
