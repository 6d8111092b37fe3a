package result_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

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
	if err := result.Verdicts(&b, limits, result.Summary{"slower": 1.5, "faster": 0.5, "wrong": 1, "own": 9}); err != nil {
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

// part is a benchmark's own.
type part struct {
	result.Part
	Points []int `json:"points"`
}

// Parts that are measured one by one come together in the file.
func TestPartsAreMerged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bench", "results.json")
	if first, err := result.Load[part](path); err != nil || len(first) != 0 {
		t.Fatalf("%v, %v", first, err)
	}
	want := map[string]part{}
	for n, name := range []string{"one", "two"} {
		got, err := result.Load[part](path)
		if err != nil {
			t.Fatal(err)
		}
		p := part{Part: result.Begin(7, 3), Points: []int{n}}
		p.Figures["slower"] = 1
		p.End()
		p.Machine = map[string]any{"cpus": 2.0}
		got[name], want[name] = p, p
		if err := result.Write(path, result.Summary{"slower": 1}, got); err != nil {
			t.Fatal(err)
		}
	}
	got, err := result.Load[part](path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmpopts.IgnoreUnexported(result.Part{}), cmpopts.EquateApproxTime(time.Microsecond)); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(b), "{\n \"summary\": {\n  \"slower\": 1\n },") {
		t.Errorf("%v: %.100s", err, b)
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

func TestAPartIsShownWithAllThatItSays(t *testing.T) {
	p := result.Begin(7, 3)
	p.Figures["slower"], p.Notes = 1.5, []string{"one failed"}
	var b strings.Builder
	p.Head(&b, "chain")
	p.Tail(&b)
	for _, want := range []string{"chain, 3 repetitions", "slower 1.500\n", "one failed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in %q", want, b.String())
		}
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
