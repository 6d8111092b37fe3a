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
	"slices"
	"strings"
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
	bin, out, figures, only, sizes string
	repetitions                    int
	seed                           uint64
	startup                        time.Duration
	redraw                         bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.bin, "bin", "out/bin", "directory of what `make build` made")
	flag.StringVar(&o.out, "out", "out/bench", "directory for prefetch.json, the logs and, unless -figures, the figures")
	flag.StringVar(&o.figures, "figures", "", "directory for the figures, like docs/results")
	flag.StringVar(&o.only, "only", "", "comma-separated parts: "+strings.Join(partNames(), ",")+"; empty: all")
	flag.StringVar(&o.sizes, "sizes", "", "comma-separated sizes in bytes instead of the workflows' own, to try something out")
	flag.IntVar(&o.repetitions, "repetitions", repetitions, "of each point; the results are medians")
	flag.Uint64Var(&o.seed, "seed", coldrun.Seed, "of the data")
	flag.DurationVar(&o.startup, "startup", startup, "what the functions of chain and video take to start beyond their own")
	flag.BoolVar(&o.redraw, "redraw", false, "measure nothing; show what prefetch.json has")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-prefetch:", err)
		os.Exit(1)
	}
}

func progress(step string) { fmt.Fprintln(os.Stderr, "·", time.Now().Format(time.TimeOnly), step) }

// bench is what the parts share.
type bench struct {
	*testbed.Bed
	options
}

// parts in their order.
var parts = []struct {
	name string
	run  func(*bench, context.Context, *prefetch.Part) error
}{
	{"hot", (*bench).hot},
	{"many", (*bench).many},
	{"large", (*bench).large},
	{prefetch.Chain, (*bench).chain},
	{prefetch.Video, (*bench).video},
	{prefetch.Delay, (*bench).delay},
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, o options) (err error) {
	for _, dir := range []*string{&o.bin, &o.out} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	if o.figures == "" {
		o.figures = o.out
	}
	results, err := prefetch.Load(o.file())
	if err != nil {
		return fmt.Errorf("the results so far: %w", err)
	}
	if !o.redraw {
		if err := o.measure(ctx, results); err != nil {
			return err
		}
	}
	if err := result.Draw(o.figures, results.Figures()); err != nil {
		return err
	}
	if err := o.show(results); err != nil {
		return err
	}
	return results.Sound()
}

func (o options) file() string { return filepath.Join(o.out, "prefetch.json") }

// measure adds the chosen parts to the results, and writes these after each.
func (o options) measure(ctx context.Context, results prefetch.Results) (err error) {
	names, err := result.Choose(partNames(), o.only)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces and containers need root")
	}
	work := filepath.Join(o.out, "prefetch")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	bed, err := testbed.Open(ctx, testbed.Config{Name: "hsbench", BinDir: o.bin, WorkDir: work, Subnet: netip.MustParsePrefix("10.221.0.0/16"),
		Delay: linkDelay, Rate: linkRate, BufferMemory: bufferMemory, Redis: true, Progress: progress})
	if err != nil {
		return err
	}
	defer func() {
		progress("removing everything")
		err = errors.Join(err, bed.Close())
	}()
	for _, image := range []string{testbed.Workflow, testbed.Fire} {
		if err := bed.ImportImage(ctx, image); err != nil {
			return err
		}
	}
	b := &bench{Bed: bed, options: o}
	for _, p := range parts {
		if !slices.Contains(names, p.name) {
			continue
		}
		progress("part " + p.name)
		part := prefetch.Part{Part: result.Begin(o.seed, o.repetitions)}
		if err := p.run(b, ctx, &part); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		part.End()
		results[p.name] = part
		if err := results.Write(o.file()); err != nil {
			return err
		}
	}
	return nil
}

func (o options) show(results prefetch.Results) error {
	for _, name := range partNames() {
		part, ok := results[name]
		if !ok {
			continue
		}
		part.Head(os.Stdout, name)
		if rows := part.Rows(); len(rows) > 0 {
			if err := prefetch.Table(os.Stdout, rows); err != nil {
				return err
			}
		}
		part.Tail(os.Stdout)
	}
	fmt.Println()
	return result.Verdicts(os.Stdout, prefetch.Limits, results.Summary())
}
