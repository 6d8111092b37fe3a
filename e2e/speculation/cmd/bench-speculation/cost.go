package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/functions/chain/image"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/speculation"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// The daemon's metrics.
const (
	metricWorked = "headstart_ingress_delivery_seconds_total"
	metricFence  = "headstart_workflow_fence_duration_seconds"
	metricFree   = "headstart_ingress_squash_duration_seconds"
)

// worked is for how many seconds the instances of an app's functions have had requests of workflows: of those that work in their turn, and of
// those that may run ahead.
func (b *bench) worked(ctx context.Context, app speculation.App) (seconds [2]float64, err error) {
	all, err := b.bed.Metrics(ctx, testbed.Edge)
	if err != nil {
		return seconds, err
	}
	for _, m := range all[metricWorked].GetMetric() {
		of := m.GetLabel()[0].GetValue()
		switch {
		case !strings.HasPrefix(of, "default/"+app.Name+"-"):
		case strings.HasSuffix(of, ahead):
			seconds[1] += m.GetCounter().GetValue()
		default:
			seconds[0] += m.GetCounter().GetValue()
		}
	}
	return seconds, nil
}

const (
	// block is how many requests are sent while the processors' time is taken: the kernel counts it in hundredths of a second.
	block = 10
	// blockShare: one of so many repetitions is a block.
	blockShare = 10
	// quiet is how long nothing is sent, to see what the platform takes then.
	quiet = 5 * time.Second
)

// userHZ is the kernel's unit of processor time (proc(5), USER_HZ), which is the same on all of Linux's usual architectures.
const userHZ = 100

// busy is the time that the machine's processors have worked.
func busy() (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	var user, nice, system, idle, iowait, irq, softirq int64
	if _, err := fmt.Sscanf(string(b), "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq); err != nil {
		return 0, fmt.Errorf("reading /proc/stat: %w", err)
	}
	return time.Duration(user+nice+system+irq+softirq) * time.Second / userHZ, nil
}

// spent is what something takes of the processors, and how long it takes.
func spent(do func() error) (cpu, took time.Duration, err error) {
	began := time.Now()
	before, err := busy()
	if err != nil {
		return 0, 0, err
	}
	if err := do(); err != nil {
		return 0, 0, err
	}
	after, err := busy()
	return after - before, time.Since(began), err
}

// cost measures the processors' time, when all guesses are right.
func (b *bench) cost(ctx context.Context, part *speculation.Part) error {
	idle, took, err := spent(func() error { return sleep(ctx, quiet) })
	if err != nil {
		return err
	}
	rate := float64(idle) / float64(took)
	for _, app := range speculation.Apps {
		result.Progress(app.Name + ", the processors' time")
		suffixes := []string{inTurn, ahead}
		cpu := make([]float64, len(suffixes))
		blocks := max(1, b.Repetitions/blockShare)
		for n := range 1 + blocks {
			for i, suffix := range suffixes {
				spent, took, err := spent(func() error {
					for range block {
						if _, err := b.send(ctx, app.Name+suffix, "", map[string]any{"miss": "miss=0"}); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					return err
				}
				if n > 0 {
					cpu[i] += float64(spent) - rate*float64(took)
				}
			}
		}
		p := cache.Point{Case: app.Name}
		for i, column := range []string{"in turn CPU us", "ahead CPU us"} {
			cpu[i] /= float64(time.Microsecond) * float64(blocks*block*app.Path) // of a function
			p.Values = append(p.Values, cache.Value{Name: column, Value: cpu[i]})
		}
		part.Points = append(part.Points, p)
		part.Figures[speculation.CPUAdded] += (cpu[1] - cpu[0]) / float64(len(speculation.Apps))
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The workflows of which every other guess is wrong when the first function has answered, while the second one works on it.
const (
	squashGo, squashPython = "squash-go", "squash-python"
	squashedWork           = "50ms"
)

// squash measures how soon a call is over that is squashed while a program works on it: one in Go, and one in Python with the helper.
func (b *bench) squash(ctx context.Context, part *speculation.Part) error {
	stays := map[string]string{filterapi.AnnotationScaleToZero: "1h", filterapi.AnnotationSpeculation: "allowed"}
	functions := []testbed.Function{{Name: "squash-first", Image: image.Ref, Node: testbed.Edge, Annotations: stays}}
	var workflows []string
	for _, f := range []testbed.Function{{Name: squashGo}, {Name: squashPython, Command: image.Python}} {
		f.Image, f.Node, f.Annotations, f.Env = image.Ref, testbed.Edge, stays, map[string]string{"WORK": squashedWork}
		functions = append(functions, f)
		workflows = append(workflows, fmt.Sprintf(`apiVersion: headstart.dev/v1alpha1
kind: Workflow
metadata: { name: %[1]s-flow }
spec:
  document: { dsl: '1.0.0', namespace: default, name: %[1]s, version: '1.0.0' }
  do:
  - first: { call: http, with: { method: post, endpoint: 'http://squash-first.default/', headers: { baggage: miss=0.5 }, body: { branch: true } } }
  - second: { call: http, with: { method: post, endpoint: 'http://%[1]s.default/', body: '${ . }' } }
`, f.Name))
	}
	if err := b.bed.Apply(ctx, functions...); err != nil {
		return err
	}
	if _, err := b.bed.Client().Apply(ctx, strings.NewReader(strings.Join(workflows, "---\n"))); err != nil {
		return err
	}
	for _, name := range []string{squashGo, squashPython} {
		result.Progress(name)
		var before map[string]*dto.MetricFamily
		for n := range warmUps + 2*b.Repetitions {
			if n == warmUps {
				var err error
				if before, err = b.bed.Metrics(ctx, testbed.Edge); err != nil {
					return err
				}
			}
			if _, err := b.send(ctx, name+"-flow", "", nil); err != nil {
				return err
			}
		}
		after, err := b.bed.Metrics(ctx, testbed.Edge)
		if err != nil {
			return err
		}
		p := cache.Point{Case: name}
		for _, m := range []struct{ metric, column string }{{metricFence, "fence p50 ms"}, {metricFree, "free p50 ms"}} {
			p50, err := median(before[m.metric], after[m.metric])
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, m.metric, err)
			}
			p.Values = append(p.Values, cache.Value{Name: m.column, Value: milliseconds(p50)})
		}
		part.Points = append(part.Points, p)
	}
	python := part.Points[len(part.Points)-1]
	part.Figures[speculation.SquashFence], part.Figures[speculation.SquashFree] = python.Of("fence p50 ms"), python.Of("free p50 ms")
	return nil
}

// median is that of what a histogram without labels has got, as its buckets tell it.
func median(before, after *dto.MetricFamily) (time.Duration, error) {
	if len(after.GetMetric()) == 0 {
		return 0, errors.New("there is no such metric")
	}
	buckets := slices.Clone(after.GetMetric()[0].GetHistogram().GetBucket())
	counts := make([]float64, len(buckets))
	for i, bucket := range buckets {
		counts[i] = float64(bucket.GetCumulativeCount())
		if len(before.GetMetric()) > 0 {
			counts[i] -= float64(before.GetMetric()[0].GetHistogram().GetBucket()[i].GetCumulativeCount())
		}
	}
	half := counts[len(counts)-1] / 2
	if half == 0 {
		return 0, errors.New("nothing was squashed")
	}
	below, from := 0.0, 0.0
	for i, bucket := range buckets {
		if counts[i] >= half {
			share := (half - below) / (counts[i] - below)
			return time.Duration((from + share*(bucket.GetUpperBound()-from)) * float64(time.Second)), nil
		}
		below, from = counts[i], bucket.GetUpperBound()
	}
	return 0, errors.New("the half took longer than any bucket")
}
