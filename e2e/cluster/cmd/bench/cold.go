package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// repetitions of each case; the table shows medians.
	repetitions = 3
	// totalSlack is what a total may exceed its bound by in any case.
	totalSlack = 100 * time.Millisecond
	// idleWindow is short, because the functions have to be cold again.
	idleWindow = "2s"
	// slowStart is a function that takes longer to start, as one on a JVM does.
	slowStart = 1500 * time.Millisecond
)

// sizes of the inputs in MB.
var sizes = []int64{1, 32, 128}

// knativeSizes are fewer: each function takes half a minute to become cold again.
var knativeSizes = []int64{1, 32}

func (b *bench) cold(ctx context.Context) error {
	var cases []coldrun.Case
	var functions []world.Function
	add := func(c coldrun.Case, env map[string]string) {
		cases = append(cases, c)
		functions = append(functions, world.Function{Name: c.Off, Env: env, Annotations: map[string]string{"headstart.dev/scale-to-zero": idleWindow}},
			world.Function{Name: c.On, Env: env, Annotations: world.WithInput(idleWindow)})
	}
	for _, mb := range sizes {
		progress(fmt.Sprintf("video of %d MB", mb))
		c, err := coldrun.Generated(ctx, b.Cloud.S3, mb)
		if err != nil {
			return err
		}
		add(c, nil)
		if mb == 32 {
			c.Label, c.Key, c.Off, c.On = c.Label+", slow start", c.Key+"_slow", c.Off+"-slow", c.On+"-slow"
			add(c, map[string]string{"FIRE_STARTUP": slowStart.String()})
		}
	}
	if err := b.Deploy(ctx, functions...); err != nil {
		return err
	}
	client, err := b.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	results, err := coldrun.Run{World: client, Repetitions: repetitions, Bucket: testbed.Bucket, Progress: progress}.Measure(ctx, cases)
	if err != nil {
		return err
	}
	return b.count("deployment_", results)
}

// knative measures the same for Knative Services, which Knative's own autoscaler starts.
func (b *bench) knative(ctx context.Context) (err error) {
	progress("Knative Serving")
	k, err := b.InstallKnative(ctx)
	if err != nil {
		return err
	}
	defer k.Close()
	var cases []coldrun.Case
	for _, mb := range knativeSizes {
		c, err := coldrun.Generated(ctx, b.Cloud.S3, mb)
		if err != nil {
			return err
		}
		c.Label, c.Relayed, c.Off, c.On = c.Label+", Knative", true, "kn-"+c.Off, "kn-"+c.On
		if err := b.DeployKnative(ctx, world.KnativePair(c, nil)...); err != nil {
			return err
		}
		cases = append(cases, c)
	}
	client, err := b.Client(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	results, err := coldrun.Run{World: client, Repetitions: repetitions, Bucket: testbed.Bucket, Progress: progress, Cold: k.Cold}.Measure(ctx, cases)
	if err != nil {
		return err
	}
	return b.count("knative_", results)
}

// count takes the results of a kind of functions into the summary.
func (b *bench) count(prefix string, results []coldrun.Result) error {
	for _, r := range results {
		row := r.Row(totalSlack)
		b.rows = append(b.rows, row)
		b.summary["answers_wrong"] += float64(r.Wrong)
		b.summary["total_to_bound_max"] = max(b.summary["total_to_bound_max"], row.Ratio)
		maps.Copy(b.summary, row.Numbers(prefix))
	}
	return nil
}
