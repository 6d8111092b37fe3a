package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/functions/input"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/content"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// requestTimeout is many times what the slowest request takes.
	requestTimeout = 4 * time.Minute
	// traceTimeout: spans leave their processes within a second of their end.
	traceTimeout = 15 * time.Second
)

// object is one in the store, made of its size and seed.
type object struct {
	key    string
	size   int64
	digest string
}

// make stores an object on sides.
func (b *bench) make(ctx context.Context, key string, size int64, seed uint64, on ...string) (o object, err error) {
	data, err := content.Make(content.Noise, size, seed)
	if err != nil {
		return o, err
	}
	o = object{key: key, size: size}
	if o.digest, err = content.Digest(content.Noise, size, seed); err != nil {
		return o, err
	}
	for _, side := range on {
		if err := b.beds[side].S3.Put(ctx, key, bytes.NewReader(data)); err != nil {
			return o, fmt.Errorf("%s: %w", side, err)
		}
	}
	return o, nil
}

// caller sends requests to one function.
type caller struct {
	bed            *testbed.Bed
	node, function string
	// way is how its inputs must come to the node, when they are measured; empty: in any way.
	way string
}

// reads has the function read the whole object, and checks what it has read.
func (c caller) reads(ctx context.Context, o object) (id string, err error) {
	a, err := c.send(ctx, http.MethodPost, "/receive", o.key)
	if err != nil {
		return "", err
	}
	var got step.Received
	if err := json.Unmarshal(a.Body, &got); err != nil {
		return "", err
	}
	if got.SHA256 != o.digest {
		return "", fmt.Errorf("WRONG: %s got %d bytes of %s with the digest %s, not %s", c.function, got.Bytes, o.key, got.SHA256, o.digest)
	}
	return a.Header.Get(filterapi.HeaderRequest), nil
}

// moved is how long an object is on its way to a function that reads all of it.
func (c caller) moved(ctx context.Context, o object) (time.Duration, error) {
	id, err := c.reads(ctx, o)
	if err != nil {
		return 0, err
	}
	got, err := c.brought(ctx, id)
	return got.Moved, err
}

// opens has the function answer without a look at its input.
func (c caller) opens(ctx context.Context, o object) (id string, err error) {
	a, err := c.send(ctx, http.MethodGet, "/healthz", o.key)
	return a.Header.Get(filterapi.HeaderRequest), err
}

// send sends a request with words of its own, beside which the function finds its input as a file only.
func (c caller) send(ctx context.Context, method, path, key string) (a testbed.Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := c.bed.Request(ctx, method, c.node, c.function, path)
	if err != nil {
		return a, err
	}
	testbed.SetBody(r, []byte("{}"))
	r.Header.Set("Content-Type", input.Words)
	if key != "" {
		r.Header.Set(input.HeaderBucket, testbed.Bucket)
		r.Header.Set(input.HeaderKey, key)
	}
	if a, err = testbed.Do(r); err != nil {
		return a, err
	}
	if a.Code != http.StatusOK {
		return a, fmt.Errorf("%s, %s: %s: %s", c.function, key, a.Status, a.Body)
	}
	return a, nil
}

// brought is how a request's input came.
type brought struct {
	// Moved is how long it was on its way to where the function has it: to the node, and from there into the sandbox.
	Moved time.Duration
	// Opened is from the request's arrival at the daemon to when the function has the input's name.
	Opened time.Duration
	Way    string
}

// brought reads it from the request's trace, and checks the way.
func (c caller) brought(ctx context.Context, id string) (got brought, err error) {
	var fetch, link, held trace.Span
	err = testbed.Poll(ctx, traceTimeout, func(ctx context.Context) error {
		t, err := c.bed.Client().Trace(ctx, id)
		if err != nil {
			return err
		}
		for name, span := range map[string]*trace.Span{tracing.Fetch: &fetch, tracing.Transfer: &link, tracing.Activation: &held} {
			i := slices.IndexFunc(t.Spans, func(s trace.Span) bool { return s.Name == name })
			if i < 0 {
				return errors.New("the trace has no span " + name)
			}
			*span = t.Spans[i]
		}
		return nil
	})
	if err != nil {
		return got, fmt.Errorf("request %s: %w", id, err)
	}
	got = brought{Moved: fetch.Duration() + link.Duration(), Opened: link.End.Sub(held.Start)}
	if got.Way, _ = fetch.Attributes[string(tracing.InputWay)].(string); c.way != "" && got.Way != c.way {
		return got, fmt.Errorf("request %s of %s: the input's way is %q, not %s", id, c.function, got.Way, c.way)
	}
	return got, nil
}
