// Command bench-prefetch measures what prefetching is worth, with the experiments of Truffle's
// evaluation (section VI) and some more: real containerd, Envoy, S3 server and Redis, the
// stores behind an emulated link, everything off and on in alternation. It writes
// prefetch.json, into which parts that are measured one by one are merged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// The emulated link, the same as the demo's.
	linkDelay = 20 * time.Millisecond // one way
	linkRate  = 250_000_000           // bit/s
	// bufferMemory of each node has room for all inputs of a workflow, and not for that of the
	// large part.
	bufferMemory = 512 << 20
	// repetitions are the least that medians are taken of.
	repetitions = 10
	// startup is what the workflows' functions take to start beyond the 0.1 s of a small
	// program in Go: so long does one in Python or on a JVM with its libraries, and the cold
	// starts of the paper's figures 7 to 10 were.
	startup = 1500 * time.Millisecond
)

type options struct {
	result.Options
	sizes   string
	startup time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o := options{Options: result.Options{Repetitions: repetitions, Seed: coldrun.Seed}}
	benchmark.Flags(flag.CommandLine, &o.Options)
	flag.StringVar(&o.sizes, "sizes", "", "comma-separated sizes in bytes instead of the workflows' own, to try something out")
	flag.DurationVar(&o.startup, "startup", startup, "what the functions of chain and video take to start beyond their own")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-prefetch:", err)
		os.Exit(1)
	}
}

var progress = result.Progress

// benchmark has the parts in their order.
var benchmark = result.Bench[*bench, prefetch.Point, prefetch.Results]{
	Name: "prefetch",
	Parts: []result.Step[*bench, prefetch.Point]{
		{Name: "hot", Run: (*bench).hot},
		{Name: "many", Run: (*bench).many},
		{Name: "large", Run: (*bench).large},
		{Name: prefetch.Chain, Run: (*bench).chain},
		{Name: prefetch.Video, Run: (*bench).video},
		{Name: prefetch.Delay, Run: (*bench).delay},
	},
	Limits: prefetch.Limits,
	Table:  prefetch.Table,
}

func run(ctx context.Context, o options) error {
	results, err := benchmark.Run(ctx, os.Stdout, o.Options, func(common result.Options) (*bench, func() error, error) {
		o.Options = common
		return open(ctx, o)
	})
	if err != nil {
		return err
	}
	return results.Sound()
}

// bench is what the parts share.
type bench struct {
	*testbed.Bed
	options
}

func open(ctx context.Context, o options) (_ *bench, end func() error, err error) {
	if os.Geteuid() != 0 {
		return nil, nil, errors.New("network namespaces and containers need root")
	}
	work := filepath.Join(o.Out, "prefetch")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, nil, err
	}
	bed, err := testbed.Open(ctx, testbed.Config{Name: "hsbench", BinDir: o.Bin, WorkDir: work, Subnet: netip.MustParsePrefix("10.221.0.0/16"),
		Delay: linkDelay, Rate: linkRate, BufferMemory: bufferMemory, Redis: true, Progress: progress})
	if err != nil {
		return nil, nil, err
	}
	end = func() error {
		progress("removing everything")
		return bed.Close()
	}
	for _, image := range []string{testbed.Workflow, testbed.Fire} {
		if err := bed.ImportImage(ctx, image); err != nil {
			return nil, nil, errors.Join(err, end())
		}
	}
	return &bench{Bed: bed, options: o}, end, nil
}
