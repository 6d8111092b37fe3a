package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/speculation"
)

const (
	// loadHit is the share of right guesses under load, in percent.
	loadHit = 90
	// spell is how long one load lasts, and spells how many there are of each, with the modes alternating. Before the first one there is
	// one of the highest load, and before each of more, in which as many instances start as that takes: functions are warm.
	spell, spells = 10 * time.Second, 2
	// clients keep the functions that work in their turn as busy as they can be.
	clients = 8
	// goodputStep is by how much the rate grows until requests take goodputLimit times what one takes alone, of what the mode that
	// works in its turn serves; goodputMost is where that ends.
	goodputStep, goodputMost, goodputLimit = 0.2, 2.0, 2
)

// loads are parts of what functions that work in their turn serve at most.
var loads = []float64{0.1, 0.25, 0.5}

// taken is how long requests took.
type taken []time.Duration

func (t taken) mean() (mean time.Duration) {
	for _, d := range t {
		mean += d / time.Duration(len(t))
	}
	return mean
}

func (t taken) p99() time.Duration { return slices.Sorted(slices.Values(t))[len(t)*99/100] }

// one sends a request to one of the apps, and notes how long it takes.
func (b *bench) one(ctx context.Context, r *rand.Rand, suffix string) func() (time.Duration, error) {
	app := speculation.Apps[r.IntN(len(speculation.Apps))]
	return func() (time.Duration, error) {
		began := time.Now()
		_, err := b.send(ctx, app.Name+suffix, "", map[string]any{"miss": fmt.Sprint("miss=", speculation.Miss(loadHit))})
		return time.Since(began), err
	}
}

// served is how many requests a second functions serve that work in their turn, with many clients of one request each.
func (b *bench) served(ctx context.Context, r *rand.Rand) (float64, error) {
	var mu sync.Mutex // of r and n
	n, until := 0, time.Now().Add(spell)
	var g errgroup.Group
	for range clients {
		g.Go(func() error {
			for time.Now().Before(until) {
				mu.Lock()
				send := b.one(ctx, r, inTurn)
				n++
				mu.Unlock()
				if _, err := send(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return float64(n) / spell.Seconds(), g.Wait()
}

// arrive has requests arrive independently of each other for a spell, whatever becomes of those before.
func (b *bench) arrive(ctx context.Context, r *rand.Rand, suffix string, rate float64) (all taken, err error) {
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex // of all
	due := time.Now()
	for until := due.Add(spell); due.Before(until) && ctx.Err() == nil; due = due.Add(time.Duration(r.ExpFloat64() / rate * float64(time.Second))) {
		time.Sleep(time.Until(due))
		send := b.one(ctx, r, suffix)
		g.Go(func() error {
			took, err := send()
			mu.Lock()
			defer mu.Unlock()
			all = append(all, took)
			return err
		})
	}
	return all, g.Wait()
}

// load measures requests that come at random, as parts of what functions that work in their turn serve.
func (b *bench) load(ctx context.Context, part *speculation.Part) error {
	r := rand.New(rand.NewPCG(b.Seed, 1))
	result.Progress("how much is served in turn")
	var most float64
	var alone taken
	for range 2 { // first it starts as many instances as that takes
		var err error
		if most, err = b.served(ctx, r); err != nil {
			return err
		}
	}
	for range warmUps * len(speculation.Apps) {
		took, err := b.one(ctx, r, inTurn)()
		if err == nil {
			_, err = b.one(ctx, r, ahead)()
		}
		if err != nil {
			return err
		}
		alone = append(alone, took)
	}
	for _, suffix := range []string{inTurn, ahead} {
		result.Progress("functions start")
		if _, err := b.arrive(ctx, r, suffix, slices.Max(loads)*most); err != nil {
			return err
		}
	}
	worst := 0.0
	for _, share := range loads {
		result.Progress(fmt.Sprintf("%.0f %% of %.0f requests/s", 100*share, most))
		took := map[string]taken{}
		for range spells {
			for _, suffix := range []string{inTurn, ahead} {
				all, err := b.arrive(ctx, r, suffix, share*most)
				if err != nil {
					return err
				}
				took[suffix] = append(took[suffix], all...)
			}
		}
		ratio := float64(took[ahead].p99()) / float64(took[inTurn].p99())
		worst = max(worst, ratio)
		part.Points = append(part.Points, cache.Point{Case: fmt.Sprintf("%.0f %% of %.0f/s", 100*share, most), Values: []cache.Value{
			{Name: sequential, Value: milliseconds(took[inTurn].mean())}, {Name: early, Value: milliseconds(took[ahead].mean())},
			{Name: "in turn p99 ms", Value: milliseconds(took[inTurn].p99())}, {Name: "ahead p99 ms", Value: milliseconds(took[ahead].p99())}}})
	}
	part.Figures[speculation.P99Ratio] = worst
	goodput := map[string]float64{}
	for _, suffix := range []string{inTurn, ahead} {
		for share := goodputStep; share <= goodputMost; share += goodputStep {
			result.Progress(fmt.Sprintf("goodput%s: %.0f %% of %.0f requests/s", suffix, 100*share, most))
			var all taken
			for range 2 {
				var err error
				if all, err = b.arrive(ctx, r, suffix, share*most); err != nil {
					return err
				}
			}
			if all.mean() >= goodputLimit*alone.mean() {
				break
			}
			goodput[suffix] = share * most
		}
	}
	part.Points = append(part.Points, cache.Point{Case: fmt.Sprintf("requests/s below %.1f ms", milliseconds(goodputLimit*alone.mean())), Values: []cache.Value{
		{Name: "in turn/s", Value: goodput[inTurn]}, {Name: "ahead/s", Value: goodput[ahead]}}})
	part.Figures[speculation.GoodputRatio] = goodput[ahead] / goodput[inTurn]
	return nil
}
