package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/e2e/routing/gateways"
)

const (
	// slowUsers leave room on each node, also for what a slow one no longer does.
	slowUsers = 10
	// slowAfter is when a node becomes slow, slowFor is looked at it.
	slowAfter, slowFor = 5 * time.Second, 10 * time.Second
	slowFactor         = 10
	// steadyUsers keep the edge busy by more than half, for steadyFor.
	steadyUsers = 15
	steadyFor   = 10 * time.Minute
)

// drain measures how soon a node that becomes ten times as slow has hardly any more requests:
// one of the cloud, beside which there is another. What becomes of the edge, which is alone, is
// told beside: its slow answers are still the soonest as long as one does not wait for another.
func (b *bench) drain(ctx context.Context, part *routing.Part) error {
	return b.at(ctx, b.paths[0], func(world *bed.Bed) error {
		for round := range b.Repetitions {
			for _, v := range b.compared {
				for _, slow := range []struct {
					node   bed.Node
					figure string
				}{{world.Nodes[0], routing.DrainAloneSeconds}, {world.Nodes[1], routing.DrainSeconds}} {
					took, err := b.drainOnce(ctx, world, v, slow.node, uint64(round))
					if err != nil {
						return fmt.Errorf("%s, %s slow: %w", v.Name(), slow.node.Name, err)
					}
					name := figure(slow.figure, v)
					part.Figures[name] = max(part.Figures[name], took.Seconds())
					progress(fmt.Sprintf("%s, %s slow: drained after %v", v.Name(), slow.node.Name, took))
				}
			}
		}
		return nil
	})
}

func (b *bench) drainOnce(ctx context.Context, world *bed.Bed, v gateways.Variant, slow bed.Node, number uint64) (took time.Duration, err error) {
	err = with(ctx, world, v, func(set *gateways.Set) error {
		began := time.Now()
		slowed := make(chan error, 1)
		var after time.Duration
		timer := time.AfterFunc(warm+slowAfter, func() {
			err := world.Slow(ctx, slow, slowFactor)
			after = time.Since(began) - warm
			slowed <- err
		})
		samples, err := crowd{users: slowUsers, duration: slowAfter + slowFor, number: number, seed: b.Seed}.run(ctx, world, set)
		if timer.Stop() {
			return err // it ended before
		}
		if err := <-slowed; err != nil {
			return err
		}
		took = routing.Drained(samples, slow.Name, after)
		return err
	})
	return took, err
}

// steady counts how often the gateways' Envoys build their clusters anew while nothing
// changes.
func (b *bench) steady(ctx context.Context, part *routing.Part) error {
	return b.at(ctx, b.paths[0], func(world *bed.Bed) error {
		for _, v := range b.compared {
			if v.Name() != routing.Ours {
				continue // the others' endpoints never change, or each time; that is known
			}
			rebuilds, err := b.rebuilds(ctx, world, v)
			if err != nil {
				return fmt.Errorf("%s: %w", v.Name(), err)
			}
			part.Figures[routing.SteadyRebuilds] = rebuilds
		}
		return nil
	})
}

// figure is the summary's name for ours, and one of its own for another variant.
func figure(name string, v gateways.Variant) string {
	if v.Name() == routing.Ours {
		return name
	}
	return name + "_" + strings.ReplaceAll(v.Name(), " ", "_")
}

// rebuilds of all gateways, after the users have been there for warm.
func (b *bench) rebuilds(ctx context.Context, world *bed.Bed, v gateways.Variant) (rebuilds float64, err error) {
	count := func(set *gateways.Set) (sum float64, err error) {
		for _, n := range world.Nodes {
			more, err := set.Rebuilds(ctx, n)
			if err != nil {
				return 0, err
			}
			sum += more
		}
		return sum, nil
	}
	err = with(ctx, world, v, func(set *gateways.Set) error {
		if _, err := (crowd{users: steadyUsers, seed: b.Seed}).run(ctx, world, set); err != nil {
			return err
		}
		before, err := count(set)
		if err != nil {
			return err
		}
		if _, err := (crowd{users: steadyUsers, duration: steadyFor, number: 1, seed: b.Seed}).run(ctx, world, set); err != nil {
			return err
		}
		after, err := count(set)
		rebuilds = after - before
		return err
	})
	return rebuilds, err
}
