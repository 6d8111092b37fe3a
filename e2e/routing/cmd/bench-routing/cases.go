package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/e2e/routing/gateways"
)

// cases measures all variants in all cases of the paper.
func (b *bench) cases(ctx context.Context, part *routing.Part) error {
	for _, path := range b.paths {
		err := b.at(ctx, path, func(world *bed.Bed) error {
			if err := roundTrips(ctx, world, path, part); err != nil {
				return err
			}
			for _, users := range b.users {
				c := routing.Case{RTT: path.RTT, Jitter: path.Jitter, Users: users}
				points, err := b.compare(ctx, world, c)
				if err != nil {
					return fmt.Errorf("%v: %w", c, err)
				}
				part.Points = append(append(part.Points, points...), b.oracle(c))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// compare measures all variants in a case, one after the other in each repetition, in turns
// the first. All see the same requests at the same times.
func (b *bench) compare(ctx context.Context, world *bed.Bed, c routing.Case) ([]routing.Point, error) {
	samples, held := make([][]routing.Sample, len(b.compared)), make([]bed.State, len(b.compared))
	perSecond := 2 * c.Users * routing.UserRate
	each := time.Duration(float64(b.requests) / float64(b.Repetitions*perSecond) * float64(time.Second))
	for round := range b.Repetitions {
		for k := range b.compared {
			i := (k + round) % len(b.compared)
			err := with(ctx, world, b.compared[i], func(set *gateways.Set) error {
				before, err := done(ctx, world)
				if err != nil {
					return err
				}
				got, err := crowd{users: c.Users, duration: each, number: uint64(round), seed: b.Seed}.run(ctx, world, set)
				samples[i] = append(samples[i], got...)
				after, askErr := done(ctx, world)
				held[i].Served += after.Served - before.Served
				held[i].Service += after.Service - before.Service
				return errors.Join(err, askErr)
			})
			if err != nil {
				return nil, err
			}
			p := b.point(c, i, samples[i])
			progress(fmt.Sprintf("%v, %s: p50 %.1f ms, p99 %.1f ms, %d of %d completed", c, p.Variant, p.P50, p.P99, p.Completed, p.Sent))
		}
	}
	var points []routing.Point
	for i := range b.compared {
		p := b.point(c, i, samples[i])
		p.Held = 1000 * held[i].Service / float64(max(held[i].Served, 1))
		points = append(points, p)
	}
	return points, nil
}

// done is what all functions together have done so far.
func done(ctx context.Context, world *bed.Bed) (sum bed.State, err error) {
	for _, n := range world.Nodes {
		s, err := world.State(ctx, n)
		if err != nil {
			return sum, err
		}
		sum.Served += s.Served
		sum.Service += s.Service
	}
	return sum, nil
}

func (b *bench) point(c routing.Case, variant int, samples []routing.Sample) routing.Point {
	return routing.NewPoint(c, b.compared[variant].Name(), edge, c.Room(nodes[0].Workers), samples)
}

const (
	// What a path is checked with: so many round trips, a bit further apart than its delay
	// needs to become another.
	pathSamples = 20
	pathApart   = 250 * time.Millisecond
)

// roundTrips notes what the emulated path between edge and cloud is like.
func roundTrips(ctx context.Context, world *bed.Bed, path bed.Path, part *routing.Part) error {
	tick := time.NewTicker(pathApart)
	defer tick.Stop()
	var all []float64
	for range pathSamples {
		took, err := world.RTT(ctx, world.Nodes[0], world.Nodes[1])
		if err != nil {
			return fmt.Errorf("round trip: %w", err)
		}
		all = append(all, float64(took.Microseconds())/1000)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	slices.Sort(all)
	part.Notes = append(part.Notes, fmt.Sprintf("%v +- %v: %d round trips of %.1f to %.1f ms, median %.1f ms", path.RTT, path.Jitter,
		pathSamples, all[0], all[len(all)-1], routing.Quantile(all, 0.5)))
	return nil
}
