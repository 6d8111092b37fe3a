package main

import (
	"context"
	"fmt"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/objects"
)

// missSizes are what is fetched, and how often in each repetition: what takes milliseconds varies more.
var missSizes = []struct {
	bytes int64
	times int
}{{1000, 10}, {megabyte, 10}, {32 * megabyte, 3}, {100 * megabyte, 1}}

// misses compares fetches of objects that the node does not have with those of a node that keeps nothing.
func (b *bench) misses(ctx context.Context, part *cache.Part) error {
	var callers []caller
	for _, side := range []string{without, ours} {
		c := caller{node: testbed.Edge, function: "misses", way: objects.WayStore}
		var err error
		if c.bed, err = b.bed(ctx, side); err != nil {
			return err
		}
		if err := c.bed.Apply(ctx, hot(c.function, c.node, testbed.Store)); err != nil {
			return err
		}
		callers = append(callers, c)
	}
	for _, size := range missSizes {
		key := fmt.Sprintf("miss/%d", size.bytes)
		if _, err := b.make(ctx, key, size.bytes, b.Seed, without, ours); err != nil {
			return err
		}
		took := make([][]float64, len(callers))
		times := size.times * b.Repetitions
		result.Progress(fmt.Sprintf("misses, %s, %d times", prefetch.Label(size.bytes), times))
		for n := range times + 1 {
			o := object{key: fmt.Sprintf("%s.%d", key, n)}
			ids := make([]string, len(callers))
			for k := range callers {
				i := (n + k) % len(callers)
				var err error
				if err := callers[i].bed.S3.Copy(ctx, key, o.key); err != nil {
					return err
				}
				if ids[i], err = callers[i].opens(ctx, o); err != nil {
					return err
				}
			}
			if n == 0 { // the functions started
				continue
			}
			for i, c := range callers {
				got, err := c.brought(ctx, ids[i])
				if err != nil {
					return err
				}
				took[i] = append(took[i], milliseconds(got.Moved))
			}
		}
		ratio := medianOf(ratios(took[1], took[0]))
		part.Figures[cache.MissRatio] = max(part.Figures[cache.MissRatio], ratio)
		part.Points = append(part.Points, cache.Point{Case: prefetch.Label(size.bytes), Values: []cache.Value{
			{Name: cache.Without, Value: medianOf(took[0])}, {Name: "a miss ms", Value: medianOf(took[1])}, {Name: "ratio", Value: ratio}}})
	}
	return nil
}
