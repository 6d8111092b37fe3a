// Command bench-routing measures what routing by round trips and queues is worth, with the
// test bed of FaaSt's evaluation: an edge node and two cloud nodes in network namespaces,
// emulated links between them, Envoys as gateways, users on both sides. It writes
// routing.json, into which parts that are measured one by one are merged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/routing"
	"github.com/headstart-mesh/headstart/e2e/routing/gateways"
)

const (
	// repetitions of each point, among which its requests are divided: what else the machine
	// does hits all variants alike.
	repetitions = 2
	// requests of each point, as many as the bounds ask for.
	requests = 20_000
	seed     = 20250401
)

type options struct {
	bin, out, figures, only string
	users, rtts, variants   string
	repetitions, requests   int
	seed                    uint64
	redraw                  bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.bin, "bin", "out/bin", "directory of what `make build` made")
	flag.StringVar(&o.out, "out", "out/bench", "directory for routing.json, the logs and, unless -figures, the figures")
	flag.StringVar(&o.figures, "figures", "", "directory for the figures, like docs/results")
	flag.StringVar(&o.only, "only", "", "comma-separated parts: "+strings.Join(partNames(), ",")+"; empty: all")
	flag.StringVar(&o.users, "users", "", "comma-separated numbers of users on each side instead of the paper's, to try something out")
	flag.StringVar(&o.rtts, "rtts", "", "comma-separated round trips in ms, of the paper's; empty: all")
	flag.StringVar(&o.variants, "variants", "", "comma-separated variants: "+strings.Join(variantNames(), ",")+"; empty: all")
	flag.IntVar(&o.repetitions, "repetitions", repetitions, "of each point")
	flag.IntVar(&o.requests, "requests", requests, "of each point, over all repetitions")
	flag.Uint64Var(&o.seed, "seed", seed, "of the requests and of the links' jitter")
	flag.BoolVar(&o.redraw, "redraw", false, "measure nothing; show what routing.json has")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench-routing:", err)
		os.Exit(1)
	}
}

func progress(step string) { fmt.Fprintln(os.Stderr, "·", time.Now().Format(time.TimeOnly), step) }

// variants are all that are compared.
func variants() []gateways.Variant {
	return []gateways.Variant{gateways.RoundRobin(), gateways.LeastRequest(), gateways.LocalityFailover(), gateways.FaaSt(),
		gateways.Headstart()}
}

func variantNames() []string {
	var names []string
	for _, v := range variants() {
		names = append(names, v.Name())
	}
	return names
}

// parts in their order.
var parts = []struct {
	name string
	run  func(*bench, context.Context, *routing.Part) error
}{
	{"cases", (*bench).cases},
	{"drain", (*bench).drain},
	{"steady", (*bench).steady},
	{"filter", (*bench).filter},
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
	results, err := routing.Load(o.file())
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
	return o.show(results)
}

func (o options) file() string { return filepath.Join(o.out, "routing.json") }

// measure adds the chosen parts to the results, and writes these after each.
func (o options) measure(ctx context.Context, results routing.Results) (err error) {
	names, err := result.Choose(partNames(), o.only)
	if err != nil {
		return err
	}
	b := &bench{options: o}
	if b.compared, err = o.chosenVariants(); err != nil {
		return err
	}
	if b.users, err = o.chosenUsers(); err != nil {
		return err
	}
	if b.paths, err = o.chosenPaths(); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root")
	}
	for _, p := range parts {
		if !slices.Contains(names, p.name) {
			continue
		}
		progress("part " + p.name)
		part := routing.Part{Part: result.Begin(o.seed, o.repetitions)}
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

func (o options) show(results routing.Results) error {
	for _, name := range partNames() {
		part, ok := results[name]
		if !ok {
			continue
		}
		part.Head(os.Stdout, name)
		if len(part.Points) > 0 {
			if err := routing.Table(os.Stdout, part.Points); err != nil {
				return err
			}
		}
		part.Tail(os.Stdout)
	}
	fmt.Println()
	return result.Verdicts(os.Stdout, routing.Limits, results.Summary())
}
