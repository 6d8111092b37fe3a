package main

import (
	"context"
	"fmt"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/objects"
)

// linkRates are from a slow network to one that is half as fast as the paper's disk (573 MB/s), in bytes per second.
var linkRates = []int64{20 * megabyte, 40 * megabyte, 85 * megabyte, 170 * megabyte, 280 * megabyte}

// linksBytes is the size of the object that is on its way.
const linksBytes = 100 * megabyte

// links measures how much a cache saves at other rates of the link. Hits do not depend on that.
func (b *bench) links(ctx context.Context, part *cache.Part) error {
	kept := caller{node: testbed.Edge, function: "links", way: objects.WayRevalidated}
	var err error
	if kept.bed, err = b.bed(ctx, ours); err != nil {
		return err
	}
	if err := kept.bed.Apply(ctx, hot(kept.function, kept.node, testbed.Store)); err != nil {
		return err
	}
	for _, rate := range linkRates {
		c := sides[otherLinks]
		c.Rate = 8 * rate
		sides[otherLinks] = c
		plain := caller{node: testbed.Edge, function: "links", way: objects.WayStore}
		if plain.bed, err = b.bed(ctx, otherLinks); err != nil {
			return err
		}
		if err := plain.bed.Apply(ctx, hot(plain.function, plain.node, testbed.Store)); err != nil {
			return err
		}
		o, err := b.make(ctx, "links", linksBytes, b.Seed, otherLinks, ours)
		if err != nil {
			return err
		}
		took := map[string][]float64{}
		for n := range b.Repetitions + 1 {
			result.Progress(fmt.Sprintf("a link of %d MB/s, round %d of %d", rate/megabyte, n, b.Repetitions))
			for _, from := range turns([]column{{cache.Without, plain.moved}, {cache.Asked, kept.moved}, {cache.Copying, b.copied}}, n) {
				d, err := from.take(ctx, o)
				if err != nil && n > 0 { // the first time functions start, and the node does not have the object
					return fmt.Errorf("%s, %s: %w", from.name, o.key, err)
				}
				if n > 0 {
					took[from.name] = append(took[from.name], milliseconds(d))
				}
			}
		}
		part.Points = append(part.Points, cache.Point{Case: fmt.Sprintf("%d MB/s", rate/megabyte), Values: []cache.Value{
			{Name: cache.LinkRate, Value: float64(rate / megabyte)}, {Name: cache.Without, Value: medianOf(took[cache.Without])},
			{Name: cache.Copying, Value: medianOf(took[cache.Copying])}, {Name: cache.Asked, Value: medianOf(took[cache.Asked])},
			{Name: cache.CopyingSpeedup, Value: medianOf(ratios(took[cache.Without], took[cache.Copying]))},
			{Name: cache.Speedup, Value: medianOf(ratios(took[cache.Without], took[cache.Asked]))}}})
		delete(b.beds, otherLinks)
		if err := plain.bed.Close(); err != nil {
			return err
		}
	}
	return nil
}
