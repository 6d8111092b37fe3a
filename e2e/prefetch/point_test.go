package prefetch_test

import (
	"math"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
)

const ms = time.Millisecond

// off and on are runs of a single function.
func off(alpha, beta, input, gamma time.Duration) prefetch.Run {
	return prefetch.Run{Total: alpha + beta + input + gamma, Stages: [][]prefetch.Branch{{{Alpha: alpha, Beta: beta, Input: input, Gamma: gamma}}}}
}

func on(total, delta time.Duration) prefetch.Run {
	return prefetch.Run{Total: total, Stages: [][]prefetch.Branch{{{Alpha: 900 * ms, Beta: 900 * ms, Delta: delta, Gamma: 900 * ms}}}}
}

func point(size int64, offs, ons []prefetch.Run) prefetch.Point {
	return prefetch.Point{Passing: step.S3, Size: size, Off: offs, On: ons}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9 {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The bound is of medians of the runs without Headstart, with the faster of the transfers.
func TestARowIsMadeOfMedians(t *testing.T) {
	offs := []prefetch.Run{off(1*ms, 1000*ms, 400*ms, 10*ms), off(3*ms, 1200*ms, 600*ms, 30*ms), off(2*ms, 1100*ms, 500*ms, 20*ms)}
	r := point(32_000_000, offs, []prefetch.Run{on(1150*ms, 450*ms), on(2000*ms, 440*ms), on(1130*ms, 460*ms)}).Row()
	if want := (coldrun.Components{Alpha: 2 * ms, Beta: 1100 * ms, Delta: 450 * ms, Gamma: 20 * ms}); r.Stages[0][0] != want {
		t.Errorf("components %+v, want %+v", r.Stages[0][0], want)
	}
	if r.Off != 1622*ms || r.On != 1150*ms || r.Bound() != 1122*ms || r.Floor() != 1122*ms {
		t.Errorf("off %v, on %v, bound %v, floor %v", r.Off, r.On, r.Bound(), r.Floor())
	}
	near(t, "excess", r.Excess(), 28/(0.05*1122))
	near(t, "reduction", r.Reduction(), 1-1150.0/1622)
	share, counts := r.IOReduction()
	near(t, "I/O reduction", share, 1-28.0/500)
	if !counts {
		t.Error("it does not count")
	}
}

func TestOfShortRequestsTheSlackIsATime(t *testing.T) {
	r := point(1000, []prefetch.Run{off(0, 100*ms, 10*ms, 0)}, []prefetch.Run{on(150*ms, 10*ms)}).Row()
	near(t, "excess", r.Excess(), 2)
}

func TestWhereIOReductionCounts(t *testing.T) {
	for name, c := range map[string]struct {
		size        int64
		beta, delta time.Duration
		counts      bool
	}{
		"the cold start hides it all": {1_000_000, 100 * ms, 100 * ms, true},
		"it is longer":                {1_000_000, 100 * ms, 101 * ms, false},
		"it is small":                 {999_999, 100 * ms, 1 * ms, false},
	} {
		r := point(c.size, []prefetch.Run{off(0, c.beta, c.delta, 0)}, []prefetch.Run{on(c.beta, c.delta)}).Row()
		if _, counts := r.IOReduction(); counts != c.counts {
			t.Errorf("%s: counts %v", name, counts)
		}
	}
}

// Stages come one after the other, the branches of one at once.
func TestAWorkflowIsAsLongAsItsLongestBranches(t *testing.T) {
	branch := func(alpha, beta, delta, gamma time.Duration) prefetch.Branch {
		return prefetch.Branch{Alpha: alpha, Beta: beta, Input: delta, Delta: delta, Gamma: gamma}
	}
	r := prefetch.Run{Total: 5000 * ms, Stages: [][]prefetch.Branch{
		{branch(1*ms, 1000*ms, 500*ms, 10*ms)},
		{branch(2*ms, 100*ms, 300*ms, 10*ms), branch(1*ms, 200*ms, 100*ms, 60*ms), branch(0, 0, 0, 0)},
	}}
	row := point(1_000_000, []prefetch.Run{r}, []prefetch.Run{r}).Row()
	if row.Bound() != (1011+312)*ms || row.Floor() != (1011+261)*ms {
		t.Errorf("bound %v, floor %v", row.Bound(), row.Floor())
	}
	if _, counts := row.IOReduction(); counts {
		t.Error("one branch waits for its input longer than for its start, and yet I/O counts")
	}
}
