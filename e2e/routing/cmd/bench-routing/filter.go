package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/e2e/routing/gateways"
)

const (
	// filterRounds are how often gateways with and without the filter take turns, another one
	// first each time.
	filterRounds = 11
	// calmRate leaves the machine idle by half: what a request takes is its own.
	calmRate, calmFor = 1000, 10 * time.Second
	// full requests are sent as fast as they are answered, by many connections.
	full            = 100_000
	fullConnections = 16
	// long is how many requests the memory must not grow by, after as many as settle it.
	long, settle = 1_000_000, 100_000
	// healthPath holds no worker: what is left is the gateway.
	healthPath    = "/healthz"
	filterTimeout = 10 * time.Second
)

// filter measures what the filter costs a gateway that sends every request to the function
// next to it, with and without.
func (b *bench) filter(ctx context.Context, part *routing.Part) error {
	return b.at(ctx, b.paths[0], func(world *bed.Bed) error {
		var more, ratios []float64
		for round := range filterRounds {
			var without, with cost
			for turn := range 2 {
				filter := (round+turn)%2 == 1
				c, err := filterCost(ctx, world, filter)
				if err != nil {
					return err
				}
				if filter {
					with = c
				} else {
					without = c
				}
			}
			more, ratios = append(more, with.micros-without.micros), append(ratios, with.rate/without.rate)
			progress(fmt.Sprintf("p50 %.0f us, with the filter %.0f; %.0f requests/s, with it %.0f; %.0f us of the gateway's CPU for each, with it %.0f",
				without.micros, with.micros, without.rate, with.rate, without.cpu, with.cpu))
		}
		part.Figures[routing.FilterMicros], part.Figures[routing.FilterRPS] = middle(more), middle(ratios)
		growth, err := filterMemory(ctx, world)
		part.Figures[routing.FilterMemory] = growth
		return err
	})
}

func middle(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}

// cost is what a request takes at the median, in microseconds, how many per second can be, and
// for how many microseconds the gateway then computes for each.
type cost struct{ micros, rate, cpu float64 }

func filterCost(ctx context.Context, world *bed.Bed, filter bool) (c cost, err error) {
	return c, with(ctx, world, gateways.Own(filter), func(set *gateways.Set) error {
		if _, err := flood(ctx, world, set, settle); err != nil {
			return err
		}
		calm := load.Paced{Address: set.Address(world.Nodes[0]), Host: gateways.Host, Path: healthPath, Rate: calmRate, Connections: fullConnections,
			Duration: calmFor, Timeout: filterTimeout}.Run(ctx)
		if calm.Lost > 0 {
			return fmt.Errorf("%d requests were lost: %v", calm.Lost, calm.Reasons)
		}
		c.micros = float64(calm.Quantile(0.5).Nanoseconds()) / 1000
		before, err := set.CPU(world.Nodes[0])
		if err != nil {
			return err
		}
		if c.rate, err = flood(ctx, world, set, full); err != nil {
			return err
		}
		after, err := set.CPU(world.Nodes[0])
		c.cpu = float64((after - before).Nanoseconds()) / 1000 / full
		return err
	})
}

// flood sends requests as fast as they are answered, and returns how many that is per second.
func flood(ctx context.Context, world *bed.Bed, set *gateways.Set, requests int) (rate float64, err error) {
	began := time.Now()
	// All of them are due at once.
	r := load.Paced{Address: set.Address(world.Nodes[0]), Host: gateways.Host, Path: healthPath, Rate: float64(requests) / time.Millisecond.Seconds(),
		Connections: fullConnections, Duration: time.Millisecond, Timeout: filterTimeout}.Run(ctx)
	if r.Lost > 0 {
		return 0, fmt.Errorf("%d requests were lost: %v", r.Lost, r.Reasons)
	}
	return float64(r.Sent) / time.Since(began).Seconds(), nil
}

// filterMemory is by which part a gateway with the filter grows over many requests.
func filterMemory(ctx context.Context, world *bed.Bed) (growth float64, err error) {
	return growth, with(ctx, world, gateways.Own(true), func(set *gateways.Set) error {
		if _, err := flood(ctx, world, set, settle); err != nil {
			return err
		}
		before, err := set.Memory(world.Nodes[0])
		if err != nil {
			return err
		}
		if _, err := flood(ctx, world, set, long); err != nil {
			return err
		}
		after, err := set.Memory(world.Nodes[0])
		growth = float64(after)/float64(before) - 1
		progress(fmt.Sprintf("%.1f MB, after %d requests %.1f", float64(before)/1e6, long, float64(after)/1e6))
		return err
	})
}
