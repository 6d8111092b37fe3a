package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// largeSize is the input whose cost in memory is measured, in bytes.
	largeSize = 1_000_000_000
	// largeRepetitions are fewer: each takes a minute, and memory is not what varies.
	largeRepetitions = 3
	// heapMetric is of what lives on the heap, and what the collector has not looked at yet.
	heapMetric = "go_memstats_heap_alloc_bytes"
	// heapPoll is how often it is looked at. Each time stops the daemon for some 20 us.
	heapPoll    = 50 * time.Millisecond
	bitsPerByte = 8
)

// large measures what an input of 1 GB costs the gateways and the daemons in memory, and how
// much of the link it fills: from a store, and as a body. Redis has no such values.
func (b *bench) large(ctx context.Context, part *prefetch.Part) error {
	var functions []testbed.Function
	passings := []step.Passing{step.S3, step.Direct}
	for _, passing := range passings {
		a := annotations(passing, "on")
		a["headstart.dev/input-limit"] = "2Gi"
		functions = append(functions, testbed.Function{Name: "large-" + string(passing), Image: testbed.Workflow, Node: testbed.Edge,
			Annotations: a, Env: b.environment(passing, "WORKFLOW_STARTUP", "")})
	}
	if err := b.prepare(ctx, functions); err != nil {
		return err
	}
	check := whole(content.Noise, largeSize)
	part.Repetitions = min(b.Repetitions, largeRepetitions)
	for _, passing := range passings {
		var rates []time.Duration
		for n := range part.Repetitions {
			progress(fmt.Sprintf("1 GB, %s, round %d of %d", passing, n+1, part.Repetitions))
			delta, err := b.largeOnce(ctx, part, passing, check)
			if err != nil {
				return fmt.Errorf("%s: %w", passing, err)
			}
			rates = append(rates, delta)
		}
		fraction := largeSize * bitsPerByte / coldrun.Median(rates).Seconds() / linkRate
		part.Figures["link_fraction_"+string(passing)] = fraction
		if least, ok := part.Figures[prefetch.LinkFraction]; !ok || fraction < least {
			part.Figures[prefetch.LinkFraction] = fraction
		}
	}
	part.Figures[prefetch.WrongBytes] += 0 // measured, if there were none
	return nil
}

// largeOnce returns how long the input was on its way.
func (b *bench) largeOnce(ctx context.Context, part *prefetch.Part, passing step.Passing, check func(uint64, step.Received) error) (time.Duration, error) {
	name := "large-" + string(passing)
	if err := b.cold().AwaitCold(ctx, name); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	var sent step.Sent
	order := step.Order{Content: content.Noise, Size: largeSize, Seed: b.Seed, Passing: passing, Bucket: testbed.Bucket, Key: name,
		To: name + ".default.headstart.local", Path: "/receive"}
	grown, err := b.growth(ctx, func() (err error) {
		sent, err = b.send(ctx, order)
		return err
	})
	if err != nil {
		return 0, err
	}
	for figure, mib := range grown {
		part.Figures[figure+"_"+string(passing)] = max(part.Figures[figure+"_"+string(passing)], mib)
		part.Figures[figure] = max(part.Figures[figure], mib)
	}
	var got step.Received
	if sent.Status != http.StatusOK {
		return 0, fmt.Errorf("answer %d: %s", sent.Status, sent.Answer)
	}
	if err := json.Unmarshal(sent.Answer, &got); err != nil {
		return 0, err
	}
	if err := check(b.Seed, got); err != nil {
		part.Figures[prefetch.WrongBytes] += largeSize
		part.Notes = append(part.Notes, "WRONG: "+err.Error())
	}
	branch, err := b.branch(ctx, name, sent, passing, "on")
	return branch.Delta, err
}

// growth is by how much the gateways' resident memory and the daemons' heap grow at most
// while fn runs, in MiB: the largest of the nodes.
func (b *bench) growth(ctx context.Context, fn func() error) (map[string]float64, error) {
	nodes := []string{testbed.Edge, testbed.Cloud}
	rss := make([]int64, len(nodes))
	heap := make([]float64, len(nodes))
	for i, node := range nodes {
		inner := fn
		fn = func() (err error) {
			rss[i], err = testbed.Growth(b.PID("gateway-"+node), inner)
			return err
		}
	}
	for i, node := range nodes {
		inner := fn
		fn = func() (err error) {
			heap[i], err = b.heapGrowth(ctx, node, inner)
			return err
		}
	}
	err := fn()
	return map[string]float64{prefetch.GatewayRSS: mebibytes(float64(max(rss[0], rss[1]))), prefetch.DaemonHeap: mebibytes(max(heap[0], heap[1]))}, err
}

// heapGrowth is that of one daemon, in bytes, by its own metrics.
func (b *bench) heapGrowth(ctx context.Context, node string, fn func() error) (grown float64, err error) {
	before, err := b.Metric(ctx, node, heapMetric)
	if err != nil {
		return 0, err
	}
	watching, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(heapPoll)
		defer tick.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-tick.C:
				if now, err := b.Metric(watching, node, heapMetric); err == nil { // else the next one tells
					grown = max(grown, now-before)
				}
			}
		}
	})
	err = fn()
	stop()
	all.Wait()
	return grown, err
}

func mebibytes(bytes float64) float64 { return bytes / (1 << 20) }
