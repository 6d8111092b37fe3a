package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"strconv"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/e2e/plain"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// concurrency of the throughput's measurement. Truffle's proxy took 1.4 s at 450.
	concurrency = 1000
	// hotTime is how long each measurement of throughput takes, hotWarm the one before all others.
	hotTime, hotWarm = 5 * time.Second, 3 * time.Second
	// Latency is looked at in windows, this many for each repetition: a moment in which the
	// machine does something else, or for another one, decides over the 99th percentile of the
	// window it falls into, and over no median of many.
	latencyWindow, latencyWindows = time.Second, 5
	// hotTimeout is when a request counts as lost.
	hotTimeout = 10 * time.Second
	// halfLoad is the share of the throughput at which latency is measured.
	halfLoad = 0.5
	// hotFunction has its input from the body: its hot requests do not enter the filter.
	// filteredFunction has one from a store; its hot requests enter the filter, and as they
	// name no object, they go straight to the instance as well.
	hotFunction, filteredFunction = "hot", "hot-filtered"
	hotPath                       = "/healthz"
	p99                           = 0.99
	// pacedConnections are enough that none has to wait for its own answers.
	pacedConnections = 100
)

// gateway is one of those that are compared.
type gateway struct {
	name, function string
	port           int
	rps            []float64
	p99            []time.Duration
	lost           int
}

// hot compares hot requests through the edge's gateway with those through a second Envoy
// beside it, which has the same configuration without Headstart.
func (b *bench) hot(ctx context.Context, part *prefetch.Part) error {
	stay := func(passing step.Passing) map[string]string {
		a := annotations(passing, "on")
		a["headstart.dev/scale-to-zero"] = "1h"
		return a
	}
	if err := b.prepare(ctx, []testbed.Function{
		{Name: hotFunction, Image: testbed.Workflow, Node: testbed.Edge, Annotations: stay(step.Direct)},
		{Name: filteredFunction, Image: testbed.Workflow, Node: testbed.Edge, Annotations: stay(step.S3)},
	}); err != nil {
		return err
	}
	for _, function := range []string{hotFunction, filteredFunction} {
		if err := b.untilHot(ctx, function); err != nil {
			return err
		}
	}
	_, stop, err := plain.Start(ctx, b.Bed, b.Bin, hotFunction)
	if err != nil {
		return err
	}
	defer stop()
	with := &gateway{name: "with", function: hotFunction, port: testbed.GatewayPort}
	filtered := &gateway{name: "filtered", function: filteredFunction, port: testbed.GatewayPort}
	without := &gateway{name: "without", function: hotFunction, port: plain.Port}
	all := []*gateway{with, without, filtered}
	for _, g := range all {
		if _, err := b.throughput(ctx, g, hotWarm); err != nil {
			return err
		}
	}
	for n := range b.Repetitions {
		for k := range all {
			g := all[(n+k)%len(all)]
			rps, err := b.throughput(ctx, g, hotTime)
			if err != nil {
				return err
			}
			g.rps = append(g.rps, rps)
		}
		progress(fmt.Sprintf("hot, throughput, round %d of %d: %.0f/s with, %.0f/s without, %.0f/s through the filter",
			n+1, b.Repetitions, with.rps[n], without.rps[n], filtered.rps[n]))
	}
	rate := halfLoad * medianOf(without.rps)
	for n := range b.Repetitions * latencyWindows {
		for k := range all {
			g := all[(n+k)%len(all)]
			if err := b.latency(ctx, g, rate); err != nil {
				return err
			}
		}
		progress(fmt.Sprintf("hot, p99 at %.0f/s, round %d of %d: %v with, %v without, %v through the filter",
			rate, n+1, b.Repetitions*latencyWindows, with.p99[n], without.p99[n], filtered.p99[n]))
	}
	for _, g := range all {
		part.Figures["hot_"+g.name+"_rps"] = medianOf(g.rps)
		part.Figures["hot_"+g.name+"_p99_ms"] = coldrun.Millis(coldrun.Median(g.p99))
		part.Figures[prefetch.Failed("hot_"+g.name)] = float64(g.lost)
	}
	ratios := func(g *gateway) (rps, p99 float64) {
		return medianOf(g.rps) / medianOf(without.rps), float64(coldrun.Median(g.p99)) / float64(coldrun.Median(without.p99))
	}
	part.Figures[prefetch.HotRPS], part.Figures[prefetch.HotP99] = ratios(with)
	part.Figures["hot_filtered_rps_ratio"], part.Figures["hot_filtered_p99_ratio"] = ratios(filtered)
	return nil
}

// untilHot makes a function hot and waits until requests no longer pass the daemon, which
// names itself in the answer.
func (b *bench) untilHot(ctx context.Context, function string) error {
	return testbed.Poll(ctx, runTimeout, func(ctx context.Context) error {
		r, err := b.Request(ctx, http.MethodGet, testbed.Edge, function, hotPath)
		if err != nil {
			return err
		}
		got, err := testbed.Do(r)
		if err != nil {
			return err
		}
		if got.Code != http.StatusOK || got.Header.Get(filterapi.HeaderRequest) != "" {
			return errors.New("the function is not hot")
		}
		return nil
	})
}

func (b *bench) address(g *gateway) string {
	return netip.AddrPortFrom(b.Node(testbed.Edge).Address, uint16(g.port)).String()
}

// throughput is in requests per second, with as many as concurrency on their way.
func (b *bench) throughput(ctx context.Context, g *gateway, d time.Duration) (float64, error) {
	// Each connection is a descriptor, and the limit of one's shell may be 1024.
	out, err := exec.CommandContext(ctx, "prlimit", "--nofile=8192:", "wrk", "-t2", "-c"+strconv.Itoa(concurrency), fmt.Sprintf("-d%.0fs", d.Seconds()), "--timeout", "10s",
		"-H", "Host: "+g.function+".default.headstart.local", "http://"+b.address(g)+hotPath).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("wrk: %w: %s", err, out)
	}
	report, err := parseWrk(string(out))
	g.lost += report.lost
	return report.rps, err
}

func (b *bench) latency(ctx context.Context, g *gateway, rate float64) error {
	got := load.Paced{Address: b.address(g), Host: g.function + ".default.headstart.local", Path: hotPath,
		Rate: rate, Connections: pacedConnections, Duration: latencyWindow, Timeout: hotTimeout}.Run(ctx)
	g.lost += got.Lost
	g.p99 = append(g.p99, got.Quantile(p99))
	return ctx.Err()
}
