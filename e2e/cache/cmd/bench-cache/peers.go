package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/objects"
)

const (
	// peerBytes take more than a second at the network's rate.
	peerBytes = 200 * megabyte
	// peerTries is how many objects there are for each that counts: about every other belongs to the node that asks.
	peerTries = 6
	// siteTimeout is longer than the control plane takes to find out who is near whom.
	siteTimeout = 2 * time.Minute
)

// peers measures how much of the network an object fills that comes from another node, which has it whole.
func (b *bench) peers(ctx context.Context, part *cache.Part) error {
	bed, err := b.bed(ctx, sharing)
	if err != nil {
		return err
	}
	owner, near := caller{bed: bed, node: testbed.Cloud, function: "owner"}, caller{bed: bed, node: testbed.Edge, function: "near"}
	for _, c := range []caller{owner, near} {
		if err := bed.Apply(ctx, hot(c.function, c.node, testbed.Store)); err != nil {
			return err
		}
		err := testbed.Poll(ctx, siteTimeout, func(ctx context.Context) error {
			members, err := bed.Metric(ctx, c.node, "headstart_site_members")
			if err == nil && members != 2 {
				err = fmt.Errorf("the site of %s has %.0f members", c.node, members)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	o, err := b.make(ctx, "peer", peerBytes, b.Seed, sharing)
	if err != nil {
		return err
	}
	var fractions, took []float64
	for n := 0; len(fractions) < b.Repetitions; n++ {
		if n == peerTries*b.Repetitions {
			return fmt.Errorf("of %d objects only %d came from the other node", n, len(fractions))
		}
		result.Progress(fmt.Sprintf("from a neighbour, %d of %d", len(fractions)+1, b.Repetitions))
		again := object{key: fmt.Sprintf("peer.%d", n), size: o.size, digest: o.digest}
		if err := bed.S3.Copy(ctx, o.key, again.key); err != nil {
			return err
		}
		if _, err := owner.opens(ctx, again); err != nil {
			return err
		}
		id, err := near.reads(ctx, again)
		if err != nil {
			return err
		}
		got, err := near.brought(ctx, id)
		if err != nil {
			return err
		}
		if n > 0 && got.Way == objects.WayPeer { // with the first request the function started
			fractions = append(fractions, float64(8*o.size)/got.Moved.Seconds()/siteRate)
			took = append(took, milliseconds(got.Moved))
		}
	}
	part.Figures[cache.PeerLinkFraction] = medianOf(fractions)
	part.Points = []cache.Point{{Case: prefetch.Label(o.size) + " from a neighbour", Values: []cache.Value{
		{Name: "moved ms", Value: medianOf(took)}, {Name: "of the link %", Value: 100 * medianOf(fractions)}}}}
	return nil
}
