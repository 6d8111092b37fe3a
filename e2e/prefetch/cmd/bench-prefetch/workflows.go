package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

var (
	// chainSizes are from 1 KB to 128 MB, as the paper's.
	chainSizes = []int64{1_000, 100_000, 1_000_000, 10_000_000, 32_000_000, 64_000_000, 128_000_000}
	videoSizes = []int64{1_000_000, 10_000_000, 32_000_000, 64_000_000}
	// delays are what is added to the cold start, with delaySize to fetch. Around 3 s the
	// cold start is as long as the transfer, which is where overlap saves most.
	delays = []time.Duration{0, 2 * time.Second, 3 * time.Second, 4 * time.Second, 6 * time.Second, 10 * time.Second}
)

const (
	delaySize = 100_000_000
	// branches of the fan-out.
	branches = 3
)

// sizesOr are those asked for.
func (o options) sizesOr(otherwise []int64) ([]int64, error) {
	if o.sizes == "" {
		return otherwise, nil
	}
	var all []int64
	for s := range strings.SplitSeq(o.sizes, ",") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("-sizes: %q is not a number of bytes", s)
		}
		all = append(all, n)
	}
	return all, nil
}

// chain measures a -> b: a is hot and in the cloud, where the stores are, b is cold and at the
// edge.
func (b *bench) chain(ctx context.Context, part *prefetch.Part) error {
	sizes, err := b.sizesOr(chainSizes)
	if err != nil {
		return err
	}
	var workflows []workflow
	for _, size := range sizes {
		for _, passing := range []step.Passing{step.Direct, step.Redis, step.S3} {
			workflows = append(workflows, b.chained("chain", passing, size, b.startup))
		}
	}
	return b.chains(ctx, part, workflows)
}

// delay measures the same with longer and longer cold starts.
func (b *bench) delay(ctx context.Context, part *prefetch.Part) error {
	sizes, err := b.sizesOr([]int64{delaySize})
	if err != nil {
		return err
	}
	var workflows []workflow
	for _, added := range delays {
		for _, passing := range []step.Passing{step.Redis, step.S3} {
			workflows = append(workflows, b.chained("delay", passing, sizes[0], added))
		}
	}
	return b.chains(ctx, part, workflows)
}

func (b *bench) chained(part string, passing step.Passing, size int64, startup time.Duration) workflow {
	return workflow{Point: prefetch.Point{Passing: passing, Size: size, Startup: startup}, kind: content.Noise, path: "/receive",
		cold: []string{fmt.Sprintf("%s-%s-%d-%d", part, passing, size, startup.Milliseconds())}, check: whole(content.Noise, size)}
}

func (b *bench) chains(ctx context.Context, part *prefetch.Part, workflows []workflow) error {
	var functions []testbed.Function
	for _, w := range workflows {
		for _, side := range sides {
			functions = append(functions, testbed.Function{Name: w.cold[0] + "-" + side, Image: testbed.Workflow, Node: testbed.Edge,
				Annotations: annotations(w.Passing, side), Env: b.environment(w.Passing, "WORKFLOW_STARTUP", w.Startup.String())})
		}
	}
	if err := b.prepare(ctx, functions); err != nil {
		return err
	}
	return b.measure(ctx, part, workflows)
}

// video measures streaming -> decoder -> recognition: the camera's server is in the cloud,
// the decoder and the recognitions that it fans out to are at the edge.
func (b *bench) video(ctx context.Context, part *prefetch.Part) error {
	sizes, err := b.sizesOr(videoSizes)
	if err != nil {
		return err
	}
	var workflows []workflow
	var functions []testbed.Function
	for _, size := range sizes {
		for _, passing := range []step.Passing{step.Direct, step.Redis, step.S3} {
			name := fmt.Sprintf("video-%s-%d", passing, size)
			w := workflow{Point: prefetch.Point{Passing: passing, Size: size, Startup: b.startup}, kind: content.Video, path: "/decode",
				cold: []string{name}, check: recognised(size)}
			for n := range branches {
				w.cold = append(w.cold, fmt.Sprintf("%s-part%d", name, n))
			}
			workflows = append(workflows, w)
			for _, side := range sides {
				functions = append(functions, b.videoFunctions(w, side)...)
			}
		}
	}
	if err := b.prepare(ctx, functions); err != nil {
		return err
	}
	return b.measure(ctx, part, workflows)
}

func (b *bench) videoFunctions(w workflow, side string) []testbed.Function {
	var targets []string
	var functions []testbed.Function
	for _, name := range w.cold[1:] {
		targets = append(targets, name+"-"+side+".default.headstart.local")
		functions = append(functions, testbed.Function{Name: name + "-" + side, Image: testbed.Fire, Node: testbed.Edge,
			Annotations: annotations(w.Passing, side), Env: b.environment(w.Passing, "FIRE_STARTUP", w.Startup.String())})
	}
	env := b.environment(w.Passing, "WORKFLOW_STARTUP", w.Startup.String())
	maps.Copy(env, map[string]string{"WORKFLOW_GATEWAY": b.gateway(testbed.Edge), "WORKFLOW_TARGETS": strings.Join(targets, " "), "WORKFLOW_PASSING": string(w.Passing)})
	if side == "off" {
		env["WORKFLOW_HELD"] = "yes"
	}
	return append(functions, testbed.Function{Name: w.cold[0] + "-" + side, Image: testbed.Workflow, Node: testbed.Edge, Annotations: annotations(w.Passing, side), Env: env})
}

// recognised checks that the decoder got the video and each recognition its part of it.
func recognised(size int64) func(uint64, step.Received) error {
	decoded := whole(content.Video, size)
	return func(seed uint64, got step.Received) error {
		if err := decoded(seed, got); err != nil {
			return err
		}
		video, err := content.Make(content.Video, size, seed)
		if err != nil {
			return err
		}
		parts := content.Split(video, branches)
		if len(got.Parts) != len(parts) {
			return fmt.Errorf("%d parts of %d", len(got.Parts), len(parts))
		}
		var errs []error
		for n, sent := range got.Parts {
			var answer struct {
				SHA256 string            `json:"sha256"`
				Fire   []json.RawMessage `json:"fire"`
			}
			if err := json.Unmarshal(sent.Answer, &answer); err != nil {
				return fmt.Errorf("part %d: %d %s", n, sent.Status, sent.Answer)
			}
			if want := fmt.Sprintf("%x", sha256.Sum256(parts[n])); answer.SHA256 != want {
				errs = append(errs, fmt.Errorf("part %d: answer %d with digest %q, not %s", n, sent.Status, answer.SHA256, want))
			}
		}
		return errors.Join(errs...)
	}
}
