package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// Requests to functions that read the file and not the body, by each of the protocols.
const (
	ordinaryClients = 4
	ordinaryTries   = 500
)

// ordinarySizes are of the inputs in bytes, and how many in a hundred requests have it.
var ordinarySizes = []struct{ bytes, share int }{{1 << 10, 40}, {100 << 10, 30}, {1 << 20, 20}, {8 << 20, 7}, {32 << 20, 3}}

// answersLost sends requests to functions that leave the body alone, as servers of Python do, and
// returns how many were not answered right.
func answersLost(ctx context.Context, bed *testbed.Bed) (lost int, err error) {
	if err := bed.ImportImage(ctx, testbed.Reader); err != nil {
		return 0, err
	}
	want := map[string]string{}
	var keys []string
	for _, s := range ordinarySizes {
		content := make([]byte, s.bytes)
		_, _ = rand.NewChaCha8([32]byte{byte(s.share)}).Read(content)
		key := fmt.Sprintf("ordinary/%d", s.bytes)
		want[key] = fmt.Sprintf("%x", sha256.Sum256(content))
		if err := bed.S3.Put(ctx, key, bytes.NewReader(content)); err != nil {
			return 0, err
		}
		for range s.share {
			keys = append(keys, key)
		}
	}
	rand.New(rand.NewPCG(coldrun.Seed, 0)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for function, protocol := range map[string]string{"reader-10": "HTTP/1.0", "reader-11": "HTTP/1.1"} {
		// In the cloud, where the store is: the link has nothing to do with it.
		if err := bed.Apply(ctx, testbed.Function{Name: function, Image: testbed.Reader, Node: testbed.Cloud, Env: map[string]string{"READER_PROTOCOL": protocol},
			Annotations: map[string]string{"headstart.dev/input": testbed.Input, "headstart.dev/store": testbed.Store}}); err != nil {
			return 0, err
		}
		wrong := make([]int, ordinaryClients)
		g, ctx := errgroup.WithContext(ctx)
		for c := range ordinaryClients {
			g.Go(func() error {
				for i := c; i < ordinaryTries; i += ordinaryClients {
					key := keys[i%len(keys)]
					got, err := ask(ctx, bed, function, key)
					if ctx.Err() != nil {
						return ctx.Err()
					}
					if err != nil || got != want[key] {
						wrong[c]++
					}
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return 0, err
		}
		for _, n := range wrong {
			lost += n
		}
	}
	return lost, nil
}

func ask(ctx context.Context, bed *testbed.Bed, function, key string) (string, error) {
	r, err := bed.Request(ctx, http.MethodGet, testbed.Cloud, function, "/")
	if err != nil {
		return "", err
	}
	r.Header.Set("x-bucket", testbed.Bucket)
	r.Header.Set("x-key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

const (
	// restartEvery is how often a gateway that restarts gets a request, restartAfter how long it
	// has to answer all of them before it counts as back: longer than its filters take to compile.
	restartEvery = 5 * time.Millisecond
	restartAfter = 10 * time.Second
	// restartTimeout is longer than anything here takes.
	restartTimeout = time.Minute
)

// restartRefused kills the edge's gateway under load and returns how long it refused requests: from
// the first that failed to the last.
func restartRefused(ctx context.Context, bed *testbed.Bed, p *probe) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	if err := syscall.Kill(bed.PID("gateway-"+testbed.Edge), syscall.SIGKILL); err != nil {
		return 0, fmt.Errorf("killing the gateway: %w", err)
	}
	var first, last time.Time
	tick := time.NewTicker(restartEvery)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < restartAfter || time.Since(last) < restartAfter; {
		sent := time.Now()
		if err := p.once(ctx); err != nil && !errors.Is(err, errNotHot) {
			if first.IsZero() {
				first = sent
			}
			last = time.Now()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("the gateway is not back: %w", ctx.Err())
		}
	}
	return last.Sub(first), nil
}
