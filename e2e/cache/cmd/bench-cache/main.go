// Command bench-cache measures what the node's cache is worth. It writes cache.json, into which parts that are
// measured one by one are merged.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/headstart-mesh/headstart/e2e/cache"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// repetitions of each point that is measured, of which medians are taken.
	repetitions = 10
	seed        = 20261124
)

// bench is what the parts share. A part opens the test beds that it needs.
type bench struct {
	result.Options
	trace string
	beds  map[string]*testbed.Bed // by side
	// caches ask for an object at once; nodes get one of broadcastBytes.
	caches, nodes  int
	broadcastBytes int64
	// mediaBytes is about the size of what workflows begin with.
	mediaBytes int64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	b := &bench{Options: result.Options{Repetitions: repetitions, Seed: seed}, beds: map[string]*testbed.Bed{}}
	benchmark.Flags(flag.CommandLine, &b.Options)
	flag.StringVar(&b.trace, "trace", "", "file with a published trace (docs/results/cache.md has the formats)")
	flag.IntVar(&b.caches, "caches", 50, "that ask for one object at once, in the part "+cache.Origin)
	flag.IntVar(&b.nodes, "nodes", 16, "that get one object, in the part "+cache.Broadcast)
	flag.Int64Var(&b.broadcastBytes, "broadcast-bytes", 200*megabyte, "of that object")
	flag.Int64Var(&b.mediaBytes, "media-bytes", 200*megabyte, "of what the workflows begin with, about")
	flag.Parse()
	if _, err := benchmark.Run(ctx, os.Stdout, b.Options, b.open); err != nil {
		fmt.Fprintln(os.Stderr, "bench-cache:", err)
		os.Exit(1)
	}
}

func (b *bench) open(o result.Options) (shared *bench, end func() error, err error) {
	b.Options = o
	return b, b.close, nil
}

// benchmark has the parts in their order.
var benchmark = result.Bench[*bench, cache.Point, cache.Results]{
	Name: "cache",
	Parts: []result.Step[*bench, cache.Point]{
		{Name: cache.Eviction, Run: (*bench).eviction},
		{Name: "trace", Run: (*bench).published},
		{Name: cache.Hits, Run: (*bench).hits},
		{Name: cache.Links, Run: (*bench).links},
		{Name: cache.Misses, Run: (*bench).misses},
		{Name: cache.Volumes, Run: (*bench).volumes},
		{Name: cache.Peers, Run: (*bench).peers},
		{Name: cache.Flows, Run: (*bench).flows},
		{Name: cache.Origin, Run: (*bench).origin},
		{Name: cache.Broadcast, Run: (*bench).broadcast},
		{Name: cache.S3, Run: (*bench).sdk},
		{Name: cache.Chains, Run: (*bench).chains},
	},
	Limits: cache.Limits,
	Table:  cache.Table,
}
