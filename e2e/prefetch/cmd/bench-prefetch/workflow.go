package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// sender is a of a -> b, and the camera: hot, in the cloud.
	sender = "sender"
	// runTimeout is many times what the slowest run takes.
	runTimeout = 4 * time.Minute
	// failuresMost is how many runs of a part may fail; each is noted and measured again.
	failuresMost = 40
)

// sides of each pair: without Headstart and with it.
var sides = []string{"off", "on"}

// workflow is one point with what it takes to measure it.
type workflow struct {
	prefetch.Point
	kind, path string
	// cold are the functions that must have no instance, without the side.
	cold []string
	// check tells what is wrong with an answer.
	check func(seed uint64, got step.Received) error
}

func (w workflow) label() string {
	return fmt.Sprintf("%s, %s, %v added", w.Passing, prefetch.Label(w.Size), w.Startup)
}

// prepare deploys the sender and the functions.
func (b *bench) prepare(ctx context.Context, functions []testbed.Function) error {
	functions = append(functions, testbed.Function{Name: sender, Image: testbed.Workflow, Node: testbed.Cloud,
		Annotations: map[string]string{"headstart.dev/scale-to-zero": "1h"},
		Env:         map[string]string{"WORKFLOW_GATEWAY": b.gateway(testbed.Cloud), "REDIS_ADDRESS": b.Redis.Address, "REDIS_PASSWORD": b.RedisPassword}})
	return b.Apply(ctx, functions...)
}

func (b *bench) gateway(node string) string {
	return fmt.Sprintf("%s:%d", b.Node(node).Address, testbed.GatewayPort)
}

// annotations of a function on one of the sides. One second is the shortest idle window.
func annotations(passing step.Passing, side string) map[string]string {
	a := map[string]string{"headstart.dev/scale-to-zero": "1s"}
	if side == "off" {
		return a
	}
	switch passing {
	case step.Direct:
		a["headstart.dev/input"] = "body"
	case step.Redis:
		a["headstart.dev/input"], a["headstart.dev/store"] = testbed.RedisInput, testbed.RedisStore
	case step.S3:
		a["headstart.dev/input"], a["headstart.dev/store"] = testbed.Input, testbed.Store
	}
	return a
}

// environment is what a function needs to fetch by itself, beyond what all have, and a
// variable that it is given.
func (b *bench) environment(passing step.Passing, name, value string) map[string]string {
	env := map[string]string{name: value}
	if passing == step.Redis {
		env["REDIS_ADDRESS"], env["REDIS_PASSWORD"] = b.Redis.Address, b.RedisPassword
	}
	return env
}

// measure runs the workflows in turn, off and on in alternation, and who is first in
// alternation too.
func (b *bench) measure(ctx context.Context, part *prefetch.Part, workflows []workflow) error {
	points := make([]prefetch.Point, len(workflows))
	for i, w := range workflows {
		points[i] = w.Point
	}
	began, failures := time.Now(), 0
	for _, side := range sides {
		part.Figures[prefetch.Failed(side)] = 0
	}
	for n := range b.Repetitions {
		progress(fmt.Sprintf("round %d of %d, %.0f s so far", n+1, b.Repetitions, time.Since(began).Seconds()))
		for i, w := range workflows {
			runs := map[string]prefetch.Run{}
			for k := range sides {
				side := sides[(n+k)%len(sides)]
				r, err := b.once(ctx, part, w, side, n)
				for ; err != nil; r, err = b.once(ctx, part, w, side, n) {
					failures++
					part.Figures[prefetch.Failed(side)]++
					part.Notes = append(part.Notes, fmt.Sprintf("%s, %s, round %d failed: %v", w.label(), side, n+1, err))
					progress(part.Notes[len(part.Notes)-1])
					if failures > failuresMost || ctx.Err() != nil {
						return err
					}
				}
				runs[side] = r
			}
			points[i].Off, points[i].On = append(points[i].Off, runs["off"]), append(points[i].On, runs["on"])
			progress(fmt.Sprintf("%s: %.0f ms off, %.0f ms on", w.label(), coldrun.Millis(runs["off"].Total), coldrun.Millis(runs["on"].Total)))
		}
	}
	part.Points = points
	part.Figures[prefetch.WrongBytes] += 0 // measured, if there were none
	return nil
}

// once has the workflow run once, in that round.
func (b *bench) once(ctx context.Context, part *prefetch.Part, w workflow, side string, round int) (run prefetch.Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	seed := b.Seed + uint64(round)
	for _, f := range w.cold {
		if err := b.cold().AwaitCold(ctx, f+"-"+side); err != nil {
			return run, err
		}
	}
	sent, err := b.send(ctx, step.Order{Content: w.kind, Size: w.Size, Seed: seed, Passing: w.Passing, Held: side == "off", Bucket: testbed.Bucket,
		Key: w.cold[0], To: w.cold[0] + "-" + side + ".default.headstart.local", Path: w.path})
	if err != nil {
		return run, err
	}
	var got step.Received
	if sent.Status != http.StatusOK {
		return run, fmt.Errorf("%s: answer %d: %s", w.cold[0], sent.Status, sent.Answer)
	}
	if err := json.Unmarshal(sent.Answer, &got); err != nil {
		return run, err
	}
	if err := w.check(seed, got); err != nil {
		part.Figures[prefetch.WrongBytes] += float64(w.Size)
		part.Notes = append(part.Notes, fmt.Sprintf("WRONG answer of %s, %s: %v", w.label(), side, err))
		progress(part.Notes[len(part.Notes)-1])
	}
	run.Total = got.Done.Sub(sent.At)
	for _, stage := range [][]step.Sent{{sent}, got.Parts} {
		var branches []prefetch.Branch
		for _, s := range stage {
			branch, err := b.branch(ctx, fmt.Sprintf("%s-%s.%d.%d.%d", w.cold[0], side, round, len(run.Stages), len(branches)), s, w.Passing, side)
			if err != nil {
				return run, err
			}
			branches = append(branches, branch)
		}
		if len(branches) > 0 {
			run.Stages = append(run.Stages, branches)
		}
	}
	return run, nil
}

// send gives the order to the sender. An answer of its own that is no success is an error.
func (b *bench) send(ctx context.Context, o step.Order) (s step.Sent, err error) {
	order, err := json.Marshal(o)
	if err != nil {
		return s, err
	}
	r, err := b.Request(ctx, http.MethodPost, testbed.Cloud, sender, "/send")
	if err != nil {
		return s, err
	}
	testbed.SetBody(r, order)
	got, err := testbed.Do(r)
	if err != nil {
		return s, err
	}
	if got.Code != http.StatusOK {
		return s, fmt.Errorf("the sender: %s: %s", got.Status, got.Body)
	}
	return s, json.Unmarshal(got.Body, &s)
}

// branch is what function and trace tell of a request; the trace is kept by that name. A
// function without Headstart that did not fetch by itself, or one with Headstart that did, was
// not measured as it was meant to be.
func (b *bench) branch(ctx context.Context, name string, s step.Sent, passing step.Passing, side string) (got prefetch.Branch, err error) {
	input, exec, origin, err := coldrun.ServerTiming(s.Timing)
	if err != nil {
		return got, err
	}
	want := "body"
	switch {
	case passing == step.Direct:
	case side == "on":
		want = "file"
	default:
		want = "store"
	}
	if origin != want {
		return got, fmt.Errorf("a function took its input from its %s, not from its %s", origin, want)
	}
	t, phases, err := b.cold().AwaitTrace(ctx, s.Request, side == "on")
	if err != nil {
		return got, fmt.Errorf("trace %s: %w", s.Request, err)
	}
	if err := b.keep(name, t, s.Timing); err != nil {
		return got, err
	}
	root, _ := t.Root() // it has one, or Phases would miss it
	got = prefetch.Branch{Alpha: root.Start.Add(phases.Alpha).Sub(s.At), Beta: phases.Beta, Input: input, Gamma: exec}
	if side == "on" {
		got.Delta = phases.Delta
	}
	return got, nil
}

// keep writes a trace for whoever wants to know where its time went.
func (b *bench) keep(name string, t trace.Trace, timing string) error {
	dir := filepath.Join(b.Out, "prefetch", "traces")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	if err := trace.Waterfall(&text, t, trace.WaterfallOptions{Width: traceWidth}); err != nil {
		return err
	}
	fmt.Fprintf(&text, "\nthe function: %s\n", timing)
	return os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text.String()), 0o644)
}

// traceWidth is in characters.
const traceWidth = 140

// cold has what coldrun knows of functions that are cold, and of traces.
func (b *bench) cold() coldrun.Run { return coldrun.Run{World: coldrun.On{Bed: b.Bed}} }

// whole checks that the function got all that was made.
func whole(kind string, size int64) func(uint64, step.Received) error {
	var seed uint64
	var want string
	return func(of uint64, got step.Received) (err error) {
		if want == "" || seed != of {
			if want, err = content.Digest(kind, size, of); err != nil {
				return err
			}
			seed = of
		}
		if got.SHA256 != want {
			return fmt.Errorf("its input of %d bytes has the digest %s, not %s", got.Bytes, got.SHA256, want)
		}
		return nil
	}
}
