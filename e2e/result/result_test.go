package result_test

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
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/chart"
	"github.com/headstart-mesh/headstart/e2e/result"
)

var limits = []result.Limit{{Name: "slower", Limit: 1.5}, {Name: "faster", Limit: 0.9, AtLeast: true}, {Name: "wrong", Counts: true}, {Name: "absent", Limit: 1}}

func TestTheSummaryHasTheWorseOfTwoPartsAndTheSumOfCounts(t *testing.T) {
	s := result.Summary{}
	for _, figures := range []map[string]float64{{"slower": 1, "faster": 2, "wrong": 3, "own": 4}, {"slower": 2, "faster": 1, "wrong": 1}, {}} {
		s.TakeFigures(limits, figures)
	}
	if d := cmp.Diff(result.Summary{"slower": 2, "faster": 1, "wrong": 4}, s); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestVerdicts(t *testing.T) {
	var b strings.Builder
	if err := result.Verdicts(&b, result.Checks(limits, result.Summary{"slower": 1.5, "faster": 0.5, "wrong": 1, "own": 9})); err != nil {
		t.Fatal(err)
	}
	want := "slower  1.500  <= 1.5  holds\nfaster  0.500  >= 0.9  MISSED\nwrong   1.000  <= 0    MISSED\nabsent  -      <= 1    not measured\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestLimits(t *testing.T) {
	for _, l := range limits {
		if !l.Holds(l.Limit) || l.Holds(l.Limit+1) != l.AtLeast || l.Holds(l.Limit-1) == l.AtLeast {
			t.Errorf("%+v", l)
		}
	}
}

// results are a benchmark's own.
type results map[string]result.Part[int]

func (r results) Summary() result.Summary {
	s := result.Summary{}
	for _, p := range r {
		s.TakeFigures(limits, p.Figures)
	}
	return s
}

func (r results) Figures() map[string][]chart.Panel {
	return map[string][]chart.Panel{"fig1.svg": {chart.Bars{Title: "t"}}}
}

// Parts that are measured one by one come together in the file. Those that were measured before
// one that failed are not lost.
func TestPartsAreMerged(t *testing.T) {
	dir := t.TempDir()
	broken := errors.New("broken")
	step := func(name string, points []int, err error) result.Step[string, int] {
		return result.Step[string, int]{Name: name, Run: func(shared string, _ context.Context, p *result.Part[int]) error {
			p.Points, p.Figures["slower"], p.Notes = points, float64(points[0]), []string{"of " + shared}
			return err
		}}
	}
	bench := result.Bench[string, int, results]{Name: "results", Limits: limits,
		Parts: []result.Step[string, int]{step("one", []int{1}, nil), step("two", []int{2, 3}, nil), step("three", []int{4}, broken)},
		Table: func(w io.Writer, points []int) error { _, err := fmt.Fprintln(w, "points", points); return err }}
	opened, ended := 0, 0
	run := func(args ...string) (results, string, error) {
		t.Helper()
		o := result.Options{Repetitions: 3, Seed: 7}
		flags := flag.NewFlagSet("bench", flag.ContinueOnError)
		bench.Flags(flags, &o)
		if err := flags.Parse(append([]string{"-out", dir}, args...)); err != nil {
			t.Fatal(err)
		}
		var shown strings.Builder
		r, err := bench.Run(t.Context(), &shown, o, func(o result.Options) (string, func() error, error) {
			opened++
			if !filepath.IsAbs(o.Bin) || o.Figures != dir {
				t.Errorf("%+v", o)
			}
			return "bed", func() error { ended++; return nil }, nil
		})
		return r, shown.String(), err
	}
	if r, _, err := run("-only", "two"); err != nil || len(r) != 1 {
		t.Errorf("%v, %v", r, err)
	}
	if _, _, err := run("-only", "one,three"); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "three: ") {
		t.Error(err)
	}
	if _, _, err := run("-only", "four"); err == nil {
		t.Error("an unknown part is taken")
	}
	r, shown, err := run("-redraw")
	if err != nil || opened != 2 || ended != 2 {
		t.Errorf("opened %d times, ended %d times: %v", opened, ended, err)
	}
	for name, p := range r {
		if p.Repetitions != 3 || p.Seed != 7 || p.At.IsZero() || len(p.Machine) == 0 || !slices.Equal(p.Notes, []string{"of bed"}) {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if !slices.Equal(r["one"].Points, []int{1}) || !slices.Equal(r["two"].Points, []int{2, 3}) || len(r) != 2 {
		t.Errorf("%v", r)
	}
	for _, want := range []string{"one, commit ", ", 3 repetitions", "points [1]\n", "slower 1.000\n", "of bed", "points [2 3]\n", "slower  2.000  <= 1.5  MISSED"} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in %q", want, shown)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "results.json")); err != nil || !strings.HasPrefix(string(b), "{\n \"summary\": {\n  \"slower\": 2\n },") {
		t.Errorf("%v: %.100s", err, b)
	}
	if _, err := os.Stat(filepath.Join(dir, "fig1.svg")); err != nil {
		t.Error(err)
	}
}

func TestPartsAreChosen(t *testing.T) {
	all := []string{"hot", "chain", "many"}
	if names, err := result.Choose(all, ""); err != nil || len(names) != 3 {
		t.Errorf("all: %v, %v", names, err)
	}
	if names, err := result.Choose(all, "hot,chain"); err != nil || len(names) != 2 {
		t.Errorf("two: %v, %v", names, err)
	}
	if _, err := result.Choose(all, "hot,chains"); err == nil {
		t.Error("an unknown part is taken")
	}
}

func TestFiguresAreDrawn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "figures")
	if err := result.Draw(dir, map[string][]chart.Panel{"fig1.svg": {chart.Bars{Title: "t"}}}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "fig1.svg")); err != nil || !strings.HasPrefix(string(b), "<svg") {
		t.Errorf("%v: %.20s", err, b)
	}
}
