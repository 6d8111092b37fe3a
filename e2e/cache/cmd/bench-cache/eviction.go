package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/cache/trace"
)

// seeds of each mix, of which the worst counts. A trace is computed, and the same seed gives the same figures, so
// repetitions would add nothing.
const seeds = 3

// eviction replays synthetic traces: hits of a cache with a tenth of the footprint, with LRU and with ours. The bounds
// are of those with scans.
func (b *bench) eviction(ctx context.Context, p *cache.Part) error {
	p.Repetitions = seeds
	var bounded []cache.Point
	for _, zipf := range []float64{0.8, 1} {
		for _, scans := range []float64{0, 0.2, 0.4} {
			for seed := range uint64(seeds) {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				point := cache.ReplayMix(trace.Mix{Zipf: zipf, Scans: scans}, b.Seed+seed)
				p.Points = append(p.Points, point)
				if scans > 0 {
					bounded = append(bounded, point)
				}
			}
		}
	}
	p.Figures[cache.HitRatioGain], p.Figures[cache.ByteHitGain] = cache.Gains(bounded)
	return nil
}

// published replays a published trace, if one is given. Its figures have no bounds.
func (b *bench) published(_ context.Context, p *cache.Part) error {
	p.Repetitions = 1
	if b.trace == "" {
		p.Notes = append(p.Notes, "no trace was given: TRACE=file")
		return nil
	}
	file, err := os.Open(b.trace)
	if err != nil {
		return err
	}
	defer file.Close()
	t, err := trace.Read(file)
	if err != nil {
		return fmt.Errorf("%s: %w", b.trace, err)
	}
	name := fmt.Sprintf("%s, %d requests", filepath.Base(b.trace), len(t.Requests))
	p.Points = []cache.Point{cache.ReplayBoth(name, t)}
	p.Figures["trace_"+cache.HitRatioGain], p.Figures["trace_"+cache.ByteHitGain] = cache.Gains(p.Points)
	return nil
}
