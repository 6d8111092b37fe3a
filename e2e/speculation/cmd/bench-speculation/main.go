// Command bench-speculation measures what it is worth that a workflow's functions work before their turn.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/functions/chain/image"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/speculation"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// repetitions of each point that is measured.
	repetitions = 100
	seed        = 20261127
	// warmUps are requests of each kind that are not measured: functions start, and tables are filled; and as many by which nodes learn how often
	// they are right.
	warmUps = 15
	// leastHit is the share of right guesses of which one way is as likely as the other, in percent.
	leastHit = 50
	// coldStart is how long a program of the cold app takes to start, and coldAfter how long it stays without a request. Such a request
	// takes some hundred times what others take: one of so many repetitions is measured.
	coldStart, coldAfter, coldShare = "1s", "1s", 10
	// tookHeader is the answer's header with how long a function worked (e2e/functions/chain).
	tookHeader = "X-Took"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o := result.Options{Repetitions: repetitions, Seed: seed}
	benchmark.Flags(flag.CommandLine, &o)
	flag.Parse()
	open := func(o result.Options) (*bench, func() error, error) { return open(ctx, o) }
	if _, err := benchmark.Run(ctx, os.Stdout, o, open); err != nil {
		fmt.Fprintln(os.Stderr, "bench-speculation:", err)
		os.Exit(1)
	}
}

// benchmark has the parts in their order.
var benchmark = result.Bench[*bench, cache.Point, speculation.Results]{
	Name: "speculation",
	Parts: []result.Step[*bench, cache.Point]{
		{Name: speculation.Latency, Run: (*bench).latency}, {Name: speculation.Cost, Run: (*bench).cost}, {Name: speculation.Squash, Run: (*bench).squash},
		{Name: speculation.State, Run: (*bench).state}, {Name: speculation.Cold, Run: (*bench).cold}, {Name: speculation.Load, Run: (*bench).load}},
	Limits: speculation.Limits,
	Table:  cache.Table,
}

// bench is what the parts share.
type bench struct {
	result.Options
	config testbed.Config
	bed    *testbed.Bed
	// times are how long functions have worked for a client that calls them one after the other.
	times []time.Duration
}

// The ends of names: of functions that work in their turn, and of those that may run ahead.
const (
	inTurn = ""
	ahead  = "-ahead"
)

func open(ctx context.Context, o result.Options) (*bench, func() error, error) {
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("network namespaces and containers need root")
	}
	dir := filepath.Join(o.Out, "speculation")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	c := testbed.Config{Name: "hsspec", BinDir: o.Bin, WorkDir: dir, Subnet: netip.MustParsePrefix("10.246.0.0/16"), Progress: result.Progress}
	var err error
	if c.Destinations, c.Secrets, err = destinations(c); err != nil {
		return nil, nil, err
	}
	bed, err := testbed.Open(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	b := &bench{Options: o, config: c, bed: bed}
	if err := b.deploy(ctx); err != nil {
		return nil, nil, errors.Join(err, bed.Close())
	}
	return b, bed.Close, nil
}

// deploy deploys all apps, once with functions that work in their turn, and once with functions that may run ahead.
func (b *bench) deploy(ctx context.Context) error {
	archive, err := image.Build(b.Bin)
	if err == nil {
		err = b.bed.Import(ctx, archive)
	}
	if err != nil {
		return err
	}
	var functions []testbed.Function
	var workflows []string
	for _, app := range append(slices.Clone(speculation.Apps), speculation.ColdApp) {
		stays, env := "1h", map[string]string(nil)
		if app == speculation.ColdApp {
			stays, env = coldAfter, map[string]string{"START": coldStart}
		}
		for _, suffix := range []string{inTurn, ahead} {
			path, detours := app.Names()
			for _, name := range append(path, detours...) {
				f := testbed.Function{Name: name + suffix, Image: image.Ref, Node: testbed.Edge, Env: env,
					Annotations: map[string]string{filterapi.AnnotationScaleToZero: stays}}
				if suffix == ahead {
					f.Annotations[filterapi.AnnotationSpeculation] = "allowed"
				}
				functions = append(functions, f)
			}
			workflows = append(workflows, fmt.Sprintf(
				"apiVersion: headstart.dev/v1alpha1\nkind: Workflow\nmetadata: { name: %s%s }\nspec:\n  document: { dsl: '1.0.0', namespace: default, name: %s, version: '1.0.0' }\n  do:\n%s",
				app.Name, suffix, app.Name, app.Tasks(suffix)))
		}
	}
	if err := b.bed.Apply(ctx, functions...); err != nil {
		return err
	}
	_, err = b.bed.Client().Apply(ctx, strings.NewReader(strings.Join(workflows, "---\n")))
	return err
}

// send sends a request by the gateway.
func (b *bench) send(ctx context.Context, function, baggage string, body any) (a testbed.Answer, err error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return a, err
	}
	r, err := b.bed.Request(ctx, http.MethodPost, testbed.Edge, function, "/")
	if err != nil {
		return a, err
	}
	r.Header.Set("Baggage", baggage)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
	if a, err = testbed.Do(r); err == nil && a.Code != http.StatusOK {
		err = fmt.Errorf("%s answers %d: %s", function, a.Code, a.Body)
	}
	return a, err
}

// ask sends a request, and returns what is answered.
func (b *bench) ask(ctx context.Context, function, baggage string, body any) (map[string]any, error) {
	a, err := b.send(ctx, function, baggage, body)
	if err != nil {
		return nil, err
	}
	var said map[string]any
	if took, err := time.ParseDuration(a.Header.Get(tookHeader)); err == nil {
		b.times = append(b.times, took)
	}
	return said, json.Unmarshal(a.Body, &said)
}

// plain calls an app's functions one after the other, as a client without workflows does.
func (b *bench) plain(ctx context.Context, app speculation.App, miss string) error {
	return app.Walk(func(name string, body map[string]any) (any, error) { return b.step(ctx, name, miss, body) })
}

// step calls a function, and returns which way it chooses.
func (b *bench) step(ctx context.Context, function, miss string, body map[string]any) (way any, err error) {
	said, err := b.ask(ctx, function, miss, body)
	return said["way"], err
}

// The columns.
const (
	plainClient = "client ms"
	sequential  = "in turn ms"
	early       = "ahead ms"
	ideal       = "ideal ms"
	durable     = "Restate ms"
)

// way is one in which an app's functions are called.
type way struct {
	column string
	run    func(miss string) error
}

// latency measures one request at a time, with all ways alternating. An engine whose steps are durable is one of them where it is compared.
func (b *bench) latency(ctx context.Context, part *speculation.Part) error {
	engine, err := b.startRestate(ctx)
	if err != nil {
		return err
	}
	defer engine.close()
	r := rand.New(rand.NewPCG(b.Seed, 0))
	sums := map[string]float64{}
	for _, hit := range speculation.Hits {
		for _, app := range speculation.Apps {
			result.Progress(fmt.Sprintf("%s, %d %% of guesses right", app.Name, hit))
			p := cache.Point{Case: fmt.Sprintf("%s, %d %%", app.Name, hit)}
			flow := func(name string) func(miss string) error {
				return func(miss string) error { _, err := b.ask(ctx, name, "", map[string]any{"miss": miss}); return err }
			}
			ways := []way{
				{plainClient, func(miss string) error { return b.plain(ctx, app, miss) }},
				{sequential, flow(app.Name + inTurn)}, {early, flow(app.Name + ahead)},
			}
			if hit == speculation.DurableHit {
				ways = append(ways, way{durable, func(miss string) error { return engine.run(ctx, app, miss) }})
			}
			took := make([]time.Duration, len(ways))
			b.times = nil
			var before [2]float64
			const unmeasured = 2 * warmUps
			for n := range unmeasured + b.Repetitions {
				miss := speculation.Miss(hit)
				switch {
				case n < warmUps: // what is rare is to be known, too
					miss = speculation.Miss(leastHit)
				case n == unmeasured:
					if before, err = b.worked(ctx, app); err != nil {
						return err
					}
				}
				for i, way := range ways {
					began := time.Now()
					if err := way.run(fmt.Sprint("miss=", miss)); err != nil {
						return err
					}
					if n >= unmeasured {
						took[i] += time.Since(began)
					}
				}
			}
			for i, way := range ways {
				p.Values = append(p.Values, cache.Value{Name: way.column, Value: milliseconds(took[i]) / float64(b.Repetitions)})
			}
			p.Values = append(p.Values, cache.Value{Name: ideal, Value: milliseconds(app.Ideal(r, hit, b.times))})
			part.Points = append(part.Points, p)
			after, err := b.worked(ctx, app)
			if err != nil {
				return err
			}
			share := 1 / float64(len(speculation.Apps))
			sums[fmt.Sprintf(speculation.WorkRatio, hit)] += share * (after[1] - before[1]) / (after[0] - before[0])
			sums[fmt.Sprintf(speculation.OfIdeal, hit)] += share * p.Of(ideal) / p.Of(early)
			sums[fmt.Sprintf(speculation.Speedup, hit)] += share * p.Of(sequential) / p.Of(early)
			if hit == speculation.DurableHit {
				sums[speculation.SpeedupVsRestate] += share * p.Of(durable) / p.Of(early)
			}
			sums[speculation.SequentialVsPlain] += share / float64(len(speculation.Hits)) * p.Of(sequential) / p.Of(plainClient)
		}
	}
	for name, v := range sums {
		part.Figures[name] = v
	}
	return nil
}

// cold measures one request at a time, each when no function of the app runs. There is no ideal of it.
func (b *bench) cold(ctx context.Context, part *speculation.Part) error {
	app := speculation.ColdApp
	p := cache.Point{Case: fmt.Sprintf("%d functions that start for %s", app.Path, coldStart)}
	flow := func(name string) func() error {
		return func() error { _, err := b.ask(ctx, name, "", map[string]any{"miss": 0}); return err }
	}
	ways := []struct {
		column string
		run    func() error
	}{
		{plainClient, func() error { return b.plain(ctx, app, "") }}, {sequential, flow(app.Name + inTurn)}, {early, flow(app.Name + ahead)},
	}
	took := make([]time.Duration, len(ways))
	repetitions := max(1, b.Repetitions/coldShare)
	for n := range 1 + repetitions {
		result.Progress(fmt.Sprintf("cold, %d of %d", n, repetitions))
		for i, way := range ways {
			if err := b.none(ctx, app); err != nil {
				return err
			}
			began := time.Now()
			if err := way.run(); err != nil {
				return err
			}
			if n > 0 { // the first request is the one that is remembered
				took[i] += time.Since(began)
			}
		}
	}
	for i, way := range ways {
		p.Values = append(p.Values, cache.Value{Name: way.column, Value: milliseconds(took[i]) / float64(repetitions)})
	}
	part.Points = append(part.Points, p)
	part.Figures[speculation.ColdSpeedup] = p.Of(plainClient) / p.Of(early)
	return nil
}

// none waits until no function of an app runs.
func (b *bench) none(ctx context.Context, app speculation.App) error {
	return testbed.Poll(ctx, time.Minute, func(ctx context.Context) error {
		s, err := b.bed.Client().Status(ctx)
		if err != nil {
			return err
		}
		for _, f := range s.Functions {
			if strings.HasPrefix(f.Name, "default/"+app.Name+"-") && len(f.Instances) > 0 {
				return fmt.Errorf("%s still runs", f.Name)
			}
		}
		return nil
	})
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
