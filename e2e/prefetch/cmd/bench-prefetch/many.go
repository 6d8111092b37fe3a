package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// manyRequests come at once, each with an input of its own, for manyFunctions cold ones
	// in turn.
	manyRequests, manyFunctions = 200, 12
	// manyLeast and manyMost are the inputs' sizes in bytes.
	manyLeast, manyMost = 10_000, 1_000_000
)

// oneOfMany is one of the requests.
type oneOfMany struct {
	function, key string
	passing       step.Passing
	size          int64
	seed          uint64
	digest        string
}

// many sends cold requests with different inputs at once, and checks what each function got.
func (b *bench) many(ctx context.Context, part *prefetch.Part) error {
	passings := []step.Passing{step.Direct, step.Redis, step.S3}
	var functions []testbed.Function
	for n := range manyFunctions {
		passing := passings[n%len(passings)]
		functions = append(functions, testbed.Function{Name: manyName(n), Image: testbed.Workflow, Node: testbed.Edge,
			Annotations: annotations(passing, "on"), Env: b.environment(passing, "WORKFLOW_STARTUP", "")})
	}
	if err := b.prepare(ctx, functions); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(b.Seed, manyRequests))
	requests := make([]oneOfMany, manyRequests)
	for n := range requests {
		function := n % manyFunctions
		requests[n] = oneOfMany{function: manyName(function), key: fmt.Sprintf("many/%d", n), passing: passings[function%len(passings)],
			size: manyLeast + random.Int64N(manyMost-manyLeast), seed: b.Seed + uint64(n)}
	}
	var took []time.Duration
	var failed float64
	for n := range b.Repetitions {
		progress(fmt.Sprintf("%d cold requests at once, round %d of %d", manyRequests, n+1, b.Repetitions))
		for i := range requests {
			requests[i].seed += manyRequests // no input comes twice
			if err := b.store(ctx, &requests[i]); err != nil {
				return err
			}
		}
		for n := range manyFunctions {
			if err := b.cold().AwaitCold(ctx, manyName(n)); err != nil {
				return err
			}
		}
		errs := make([]error, len(requests))
		wrong := make([]bool, len(requests))
		began := time.Now()
		var all sync.WaitGroup
		for i, q := range requests {
			all.Go(func() { wrong[i], errs[i] = b.ask(ctx, q) })
		}
		all.Wait()
		took = append(took, time.Since(began))
		for i, err := range errs {
			switch {
			case err == nil:
				continue
			case wrong[i]:
				part.Figures[prefetch.WrongBytes] += float64(requests[i].size)
			default:
				failed++
			}
			part.Notes = append(part.Notes, fmt.Sprintf("round %d, %s %s: %v", n+1, requests[i].passing, requests[i].key, err))
		}
	}
	part.Figures[prefetch.ManyFailed] = failed
	part.Figures["many_all_answered_ms"] = coldrun.Millis(coldrun.Median(took))
	part.Figures[prefetch.WrongBytes] += 0 // measured, if there were none
	if failed > 0 {
		progress(fmt.Sprintf("%.0f requests FAILED", failed))
	}
	part.Notes = slices.Compact(part.Notes)
	return nil
}

func manyName(n int) string { return fmt.Sprintf("many-%d", n) }

// store puts a request's input where it will be looked for.
func (b *bench) store(ctx context.Context, q *oneOfMany) error {
	data, err := content.Make(content.Noise, q.size, q.seed)
	if err != nil {
		return err
	}
	if q.digest, err = content.Digest(content.Noise, q.size, q.seed); err != nil {
		return err
	}
	switch q.passing {
	case step.Redis:
		return b.Redis.Set(ctx, testbed.Bucket+":"+q.key, data)
	case step.S3:
		return b.S3.Put(ctx, q.key, bytes.NewReader(data))
	}
	return nil
}

// ask sends the request; wrong tells that the function saw another input.
func (b *bench) ask(ctx context.Context, q oneOfMany) (wrong bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	r, err := b.Request(ctx, http.MethodPost, testbed.Edge, q.function, "/receive")
	if err != nil {
		return false, err
	}
	r.Header.Set("x-bucket", testbed.Bucket)
	r.Header.Set("x-key", q.key)
	if q.passing == step.Direct {
		data, err := content.Make(content.Noise, q.size, q.seed)
		if err != nil {
			return false, err
		}
		testbed.SetBody(r, data)
	}
	answered, err := testbed.Do(r)
	if err != nil {
		return false, err
	}
	if answered.Code != http.StatusOK {
		return false, fmt.Errorf("%s: %s", answered.Status, answered.Body)
	}
	var got step.Received
	if err := json.Unmarshal(answered.Body, &got); err != nil {
		return true, err
	}
	if got.SHA256 != q.digest {
		return true, fmt.Errorf("%d bytes with digest %s instead of %d with %s", got.Bytes, got.SHA256, q.size, q.digest)
	}
	return false, nil
}
