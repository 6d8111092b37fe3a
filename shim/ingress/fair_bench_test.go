package ingress_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/ranged"
)

const (
	// The flood has more requests under way than one namespace may, of many functions, and more that have
	// inputs, which hardly come: it is at the limits of requests, inputs and connections.
	floodFunctions = 100
	floodRequests  = 7000
	floodInputs    = 1000
	floodInput     = 256 << 10
	// floodPause is how soon it sends again what was refused.
	floodPause = 2 * time.Second
	bufferSize = 512 << 20

	coldRequests = 100
	coldStart    = 100 * time.Millisecond
	coldInput    = 4 << 20
	roundTrip    = 5 * time.Millisecond // to the store
)

// BenchmarkFairColdP99 is a tenant with one function beside one that floods the node with a hundred: how many
// times as long its cold requests take as alone. The last line that it logs is for programs.
func BenchmarkFairColdP99(b *testing.B) {
	state := b.TempDir()
	files, err := buffer.OpenFiles(filepath.Join(state, "buffer"))
	if err != nil {
		b.Fatal(err)
	}
	r := newNodeOver(b, "edge-1", nil, buffer.New(buffer.Quota{Bytes: bufferSize, Fair: true}, buffer.Tier{Name: "disk", Limit: bufferSize, Medium: files}), state)
	r.instances.run(b, func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(w, req.Body)
	})
	r.gateway = unixClient(b, serveUnix(b, r.Gateway()))
	r.source = &ranged.Source{Fetcher: ranged.New("edge", 1<<20), Schemes: []string{"s3"}, Buckets: []string{"inputs"},
		Object: func(ref source.Reference, _ string) (ranged.Object, error) {
			return benchObject{drips: strings.HasPrefix(ref.Key, "flood")}, nil
		}}
	r.instances.ready = func(ctx context.Context, _ string) (netip.AddrPort, error) {
		select {
		case <-time.After(coldStart):
			return r.instances.address, nil
		case <-ctx.Done():
			return netip.AddrPort{}, ctx.Err()
		}
	}
	r.cp.activate = func(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		if strings.HasPrefix(a.GetFunction(), "flood/") {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &nodeapi.Bound{Request: a.GetRequest(), Instance: target, Node: "edge-1", Cold: true}, nil
	}
	functions := []*nodeapi.Function{}
	add := func(name string) {
		functions = append(functions, &nodeapi.Function{Name: name, HasInput: true, Store: "edge", InputLimit: inputLimit,
			RequestTimeout: durationpb.New(time.Minute), ReadyTimeout: durationpb.New(time.Minute)})
	}
	add("small/one")
	for n := range floodFunctions {
		add(fmt.Sprintf("flood/f%d", n))
	}
	r.functions.Set(functions)
	var seen sync.WaitGroup
	over := make(chan struct{})
	seen.Go(func() {
		for {
			select {
			case <-r.outcomes:
			case <-over:
				return // the rest finds room
			}
		}
	})
	b.Cleanup(func() { close(over); seen.Wait() })
	for b.Loop() {
		alone := coldP99(b, r)
		beside := func() time.Duration {
			defer flood(b, r)()
			return coldP99(b, r)
		}()
		ratio := float64(beside) / float64(alone)
		b.ReportMetric(ratio, "fair_cold_p99_ratio")
		b.Logf("p99 of %d cold requests: %v alone, %v beside the flood", coldRequests, alone, beside)
		b.Logf(`{"fair_cold_p99_ratio": %.3f}`, ratio)
	}
}

// coldP99 sends one cold request after the other.
func coldP99(b *testing.B, r *rig) time.Duration {
	took := make([]time.Duration, coldRequests)
	for n := range took {
		began := time.Now()
		resp, err := r.gateway.Do(request(b, "POST", "small/one", newID(), fmt.Sprintf("s3://inputs/small-%d", n), nil))
		if err != nil {
			b.Fatal(err)
		}
		answered, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || answered != coldInput {
			b.Fatalf("cold request %d: %s, %d bytes, %v", n, resp.Status, answered, err)
		}
		took[n] = time.Since(began)
	}
	slices.Sort(took)
	return took[len(took)*99/100-1]
}

// flood floods the node, from when it holds as many requests as it will, until stop is called.
func flood(b *testing.B, r *rig) (stop func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	gateway := r.Gateway()
	var full sync.WaitGroup
	full.Add(2)
	requests, inputs := sync.OnceFunc(full.Done), sync.OnceFunc(full.Done)
	for n := range floodRequests + floodInputs {
		all.Go(func() {
			for sent := 0; ctx.Err() == nil; sent++ {
				ref := ""
				if n < floodInputs {
					ref = fmt.Sprintf("s3://inputs/flood-%d-%d", n, sent)
				}
				req := request(b, "POST", fmt.Sprintf("flood/f%d", n%floodFunctions), newID(), ref, nil)
				w := httptest.NewRecorder()
				gateway.ServeHTTP(w, req.WithContext(ctx))
				switch body := w.Body.String(); {
				case strings.Contains(body, "TooManyInputs"):
					inputs()
				case strings.Contains(body, "TooManyInFlight"):
					requests()
				}
				select {
				case <-time.After(floodPause):
				case <-ctx.Done():
				}
			}
		})
	}
	full.Wait()
	return func() { cancel(); all.Wait() }
}

// benchObject is an object of the store. One that drips comes a byte at a time.
type benchObject struct{ drips bool }

// Open implements ranged.Object.
func (o benchObject) Open(ctx context.Context, at, end int64, _ *source.Object) (ranged.Answer, error) {
	select {
	case <-time.After(roundTrip):
	case <-ctx.Done():
		return ranged.Answer{}, ctx.Err()
	}
	answer := ranged.Answer{Object: source.Object{Size: coldInput, Version: "v"}, From: at}
	if o.drips {
		answer.Object.Size, answer.Body = floodInput, drip{ctx}
	} else {
		answer.Body = io.NopCloser(bytes.NewReader(make([]byte, min(end, coldInput)-at)))
	}
	return answer, nil
}

// drip gives a byte each second.
type drip struct{ ctx context.Context }

func (d drip) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		return 1, nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

func (drip) Close() error { return nil }
