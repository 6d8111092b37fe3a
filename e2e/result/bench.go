package result

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// Bench is a benchmark whose parts are measured together or one by one: what is measured is
// merged into a file. B is what its parts share, Point what they measure, and R what is made of
// it.
type Bench[B, Point any, R Results[Point]] struct {
	// Name of the file, without .json.
	Name   string
	Parts  []Step[B, Point] // in their order
	Limits []Limit
	// Table prints a part's points.
	Table func(w io.Writer, points []Point) error
}

// Step measures one part.
type Step[B, Point any] struct {
	Name string
	Run  func(B, context.Context, *Part[Point]) error
}

// Results are all parts by their names, and what is made of them.
type Results[Point any] interface {
	~map[string]Part[Point]
	Summary() Summary
	Figures() map[string][]chart.Panel
}

// Options are what each benchmark is told.
type Options struct {
	Bin, Out, Figures, Only string
	Repetitions             int
	Seed                    uint64
	Redraw                  bool
}

// Flags has flags that set the options. What these have already are the defaults.
func (b Bench[B, Point, R]) Flags(f *flag.FlagSet, o *Options) {
	f.StringVar(&o.Bin, "bin", "out/bin", "directory of what `make build` made")
	f.StringVar(&o.Out, "out", "out/bench", "directory for "+b.file()+", the logs and, unless -figures, the figures")
	f.StringVar(&o.Figures, "figures", "", "directory for the figures, like docs/results")
	f.StringVar(&o.Only, "only", "", "comma-separated parts: "+strings.Join(b.names(), ",")+"; empty: all")
	f.IntVar(&o.Repetitions, "repetitions", o.Repetitions, "of each point")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "of all that is random")
	f.BoolVar(&o.Redraw, "redraw", false, "measure nothing; show what "+b.file()+" has")
}

func (b Bench[B, Point, R]) file() string { return b.Name + ".json" }

func (b Bench[B, Point, R]) names() (all []string) {
	for _, p := range b.Parts {
		all = append(all, p.Name)
	}
	return all
}

// Run measures the chosen parts, if anything is to be measured, and draws and prints what is
// known by then. open readies what the parts share; its paths are absolute.
func (b Bench[B, Point, R]) Run(ctx context.Context, w io.Writer, o Options, open func(Options) (shared B, end func() error, err error)) (R, error) {
	for _, dir := range []*string{&o.Bin, &o.Out} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return nil, err
		}
		*dir = abs
	}
	if o.Figures == "" {
		o.Figures = o.Out
	}
	parts, err := Load[Point](filepath.Join(o.Out, b.file()))
	if err != nil {
		return nil, fmt.Errorf("the results so far: %w", err)
	}
	results := R(parts)
	if !o.Redraw {
		if err := b.measure(ctx, o, results, open); err != nil {
			return nil, err
		}
	}
	if err := Draw(o.Figures, results.Figures()); err != nil {
		return nil, err
	}
	return results, Show(w, results, b.Table, Checks(b.Limits, results.Summary()))
}

// measure adds the chosen parts to the results, and writes these after each.
func (b Bench[B, Point, R]) measure(ctx context.Context, o Options, results R, open func(Options) (B, func() error, error)) (err error) {
	names, err := Choose(b.names(), o.Only)
	if err != nil {
		return err
	}
	shared, end, err := open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for _, p := range b.Parts {
		if !slices.Contains(names, p.Name) {
			continue
		}
		Progress("part " + p.Name)
		part := Begin[Point](o.Seed, o.Repetitions)
		if err := p.Run(shared, ctx, &part); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		part.End()
		results[p.Name] = part
		if err := Write(filepath.Join(o.Out, b.file()), results.Summary(), map[string]Part[Point](results)); err != nil {
			return err
		}
	}
	return nil
}

// Progress tells whoever waits how far a benchmark is.
func Progress(step string) { fmt.Fprintln(os.Stderr, "·", time.Now().Format(time.TimeOnly), step) }
