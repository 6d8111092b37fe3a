package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/e2e/geography"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/simulator"
)

// simulatedNodes are how many nodes the simulated networks have.
var simulatedNodes = []int{3, 12, 100}

// simulated has the figures of the kinds of load for which there is a bound.
var simulated = map[simulator.Kind]string{simulator.Steady: routing.OracleRatio, simulator.Burst: routing.OracleBurstRatio}

// simulation sets Headstart's p99 against that of the oracle that foresees even how long each
// way will be, in all simulated networks. Each repetition has networks of its own.
func (b *bench) simulation(ctx context.Context, part *routing.Part) error {
	figures := result.Summary(part.Figures)
	for round := range b.Repetitions {
		seed := b.Seed + uint64(round)
		for _, c := range simulator.Cases(b.requests, simulatedNodes, seed) {
			figure, bounded := simulated[c.Kind]
			if !bounded {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			ours, oracle := simulator.Run(c.World, simulator.Headstart()), simulator.Run(c.World, simulator.Foreseeing())
			ratio := float64(ours.Quantile(0.99)) / float64(oracle.Quantile(0.99))
			figures.Take(figure, math.Max, ratio)
			note := fmt.Sprintf("%s, seed %d, %v: p99 %v, %.3f of the oracle's; %d of %d failed, %d rows replaced", c.World.Name, seed,
				ours.Window.Round(time.Second), ours.Quantile(0.99).Round(100*time.Microsecond), ratio, ours.Failed, ours.Requests, ours.Pushes)
			part.Notes = append(part.Notes, note)
			progress(note)
		}
	}
	return nil
}

const (
	// There are so many nodes on Earth, which measure for so long.
	earthNodes = 1000
	earthTime  = 4 * time.Minute
	// earthDetours is by how much (standard deviation) routes are longer or shorter than
	// distance says.
	earthDetours = 0.08
)

// coordinates measures how well a thousand simulated nodes know the ways that none of them
// measured, and how many probes that takes.
func (b *bench) coordinates(_ context.Context, part *routing.Part) error {
	r := geography.New(earthNodes, earthDetours, b.Seed).Measure(earthTime, b.Seed)
	part.Figures[routing.CoordinatesP50], part.Figures[routing.CoordinatesP95] = r.P50, r.P95
	part.Figures[routing.ProbesPerNode] = float64(r.ProbesMost)
	part.Notes = append(part.Notes, fmt.Sprintf("%d of %d pairs were measured, %d are unknown; %.2f probes per node and second in the end",
		r.Measured, r.Pairs, r.Unknown, r.ProbesLast))
	if r.Unknown > 0 {
		return fmt.Errorf("%d ways are unknown", r.Unknown)
	}
	return nil
}

// xds has a control plane serve a thousand nodes. It is a process of its own, anew for each
// repetition: the figures have what that takes.
func (b *bench) xds(ctx context.Context, part *routing.Part) error {
	figures := result.Summary(part.Figures)
	for range b.Repetitions {
		command := exec.CommandContext(ctx, filepath.Join(b.Bin, "bench-xds"), "-seed", strconv.FormatUint(b.Seed, 10))
		command.Stderr = os.Stderr
		out, err := command.Output()
		if err != nil {
			return fmt.Errorf("bench-xds: %w", err)
		}
		var got map[string]float64
		if err := json.Unmarshal(out, &got); err != nil {
			return fmt.Errorf("what bench-xds measured: %w", err)
		}
		for name, v := range got {
			figures.Take(name, math.Max, v)
		}
	}
	return nil
}
