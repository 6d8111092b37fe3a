package routing_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/e2e/result"
	"github.com/headstart-mesh/headstart/e2e/routing"
)

const ms = time.Millisecond

func answered(source, by string, sent, took time.Duration) routing.Sample {
	return routing.Sample{Source: source, By: by, Sent: sent, Took: took}
}

var calm = routing.Case{RTT: 50 * ms, Jitter: 10 * ms, Users: 5}

// What is lost, or comes when its user has gone, has taken as long as users wait.
func TestALostRequestTakesAsLongAsUsersWait(t *testing.T) {
	var samples []routing.Sample
	for n := range 97 {
		s := answered("edge", "edge", 0, 4*ms)
		s.Late = time.Duration(n+4) * ms // the others 0
		samples = append(samples, s)
	}
	samples = append(samples, answered("edge", "cloud-1", 0, 60*ms), answered("edge", "cloud-1", 0, 2*time.Second),
		routing.Sample{Source: "edge", Took: ms, Lost: true})
	p := routing.NewPoint(calm, routing.FaaSt, "edge", true, samples)
	if p.Sent != 100 || p.Completed != 98 {
		t.Errorf("%d of %d completed", p.Completed, p.Sent)
	}
	if p.Late != 99 {
		t.Errorf("1 in 100 was %g ms late", p.Late)
	}
	if p.P50 != 4 || p.P95 != 4 || p.P99 != 1000 || p.CDF[0] != 4 || p.CDF[routing.CDFSteps] != 1000 || len(p.CDF) != routing.CDFSteps+1 {
		t.Errorf("p50 %g, p95 %g, p99 %g, of %g to %g", p.P50, p.P95, p.P99, p.CDF[0], p.CDF[routing.CDFSteps])
	}
	if math.Abs(p.Away-2.0/99) > 1e-9 {
		t.Errorf("%g of those answered by somebody went away", p.Away)
	}
	if p.Served["edge"][0] != 97 || p.Served["cloud-1"][12] != 1 {
		t.Errorf("served %v", p.Served)
	}
}

func TestOfNothingThereIsNoPoint(t *testing.T) {
	if p := routing.NewPoint(calm, routing.Ours, "edge", true, nil); p.P99 != 0 || p.Away != 0 {
		t.Errorf("%+v", p)
	}
}

func TestAQuantileIsOneOfTheValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(t, "n")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		var sorted []float64
		for i := range n {
			sorted = append(sorted, float64(i+1))
		}
		got := routing.Quantile(sorted, q) // this many are not above it
		if got < q*float64(n) || got > q*float64(n)+1 && got != 1 {
			t.Fatalf("quantile %g of 1 to %d is %g", q, n, got)
		}
	})
}

func TestTheEdgeHasRoomForSoManyUsers(t *testing.T) {
	for users, room := range map[int]bool{5: true, 24: true, 25: false, 50: false} {
		if got := (routing.Case{Users: users}).Room(1); got != room {
			t.Errorf("%d users: %v", users, got)
		}
	}
}

// slowed are requests to two nodes, 100 per second each, until one has become slow; then it
// has its share for as long as it takes, and a trickle after that.
func slowed(until time.Duration) []routing.Sample {
	var all []routing.Sample
	for at := time.Duration(0); at < 10*time.Second; at += 10 * ms {
		all = append(all, answered("cloud-1", "cloud-2", at, 4*ms))
		if trickle := at%time.Second == 0; at < 5*time.Second+until || trickle {
			all = append(all, answered("cloud-1", "cloud-1", at, 4*ms))
		}
	}
	return all
}

func TestDrained(t *testing.T) {
	for _, c := range []struct{ until, want time.Duration }{
		{0, 0}, {50 * ms, 0}, {250 * ms, 500 * ms}, {900 * ms, 1000 * ms}, {time.Hour, 5 * time.Second},
	} {
		if got := routing.Drained(slowed(c.until), "cloud-1", 5*time.Second); got != c.want {
			t.Errorf("sent there for %v, drained after %v, want %v", c.until, got, c.want)
		}
	}
}

func point(c routing.Case, variant string, p50, p95, p99 float64, completed int) routing.Point {
	return routing.Point{Case: c, Variant: variant, Room: c.Room(1), Sent: 1000, Completed: completed, P50: p50, P95: p95, P99: p99,
		CDF: []float64{0, p50, p99}, Served: map[string][]int{"edge": {0, completed}, "cloud-1": {1, 2}, "cloud-2": {3, 4}}}
}

func results() routing.Results {
	far, crowded := calm, calm
	far.RTT, crowded.Users = 100*ms, 50
	return routing.Results{
		"cases": {Points: []routing.Point{
			point(calm, routing.Default, 20, 70, 80, 1000), point(calm, routing.FaaSt, 5, 50, 60, 1000), point(calm, routing.Ours, 5.1, 10, 20, 1000),
			point(far, routing.FaaSt, 5, 100, 120, 1000), point(far, routing.Ours, 5, 48, 30, 1000),
			point(crowded, routing.Default, 50, 1000, 1000, 600), point(crowded, routing.FaaSt, 30, 100, 200, 990), point(crowded, routing.Ours, 24, 70, 110, 900),
		}},
		"simulation": {Points: []routing.Point{point(crowded, routing.Oracle, 20, 60, 100, 1000)},
			Figures: map[string]float64{routing.OracleRatio: 1.01}},
		"drain": {Figures: map[string]float64{routing.DrainSeconds: 0.3, "drain_s_FaaSt": 10}},
	}
}

func TestTheSummaryHasTheWorstOfAllCases(t *testing.T) {
	want := result.Summary{
		"p95_vs_faast_max": 0.48, "p99_vs_faast_max": 20.0 / 60, "overload_p99_vs_oracle": 1.1, "p50_vs_best_max": 1.02,
		"oracle_p99_ratio": 1.01, "drain_s": 0.3,
	}
	if d := cmp.Diff(want, results().Summary(), cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestWithoutOursNothingIsJudged(t *testing.T) {
	r := routing.Results{"cases": {Points: []routing.Point{point(calm, routing.Default, 1, 2, 3, 4), point(calm, routing.FaaSt, 1, 2, 3, 4)}}}
	if s := r.Summary(); len(s) != 0 {
		t.Errorf("%v", s)
	}
}

// The paper's figures are drawn of the cases that are there.
func TestFigures(t *testing.T) {
	if f := (routing.Results{}).Figures(); len(f) != 0 {
		t.Errorf("of nothing: %v", f)
	}
	panels := map[string]int{}
	for name, p := range results().Figures() {
		panels[name] = len(p)
	}
	want := map[string]int{"routing-cdf-50ms.svg": 2, "routing-cdf-100ms.svg": 1, "routing-fig9.svg": 3, "routing-fig10.svg": 3}
	if d := cmp.Diff(want, panels); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestTheTableHasAllPoints(t *testing.T) {
	var b strings.Builder
	points := results()["cases"].Points
	if err := routing.Table(&b, points); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(b.String(), "\n"); lines != len(points)+1 {
		t.Errorf("%d lines of %d points:\n%s", lines, len(points), b.String())
	}
	for _, want := range []string{"100 +- 10", "50 + 50", "round robin", "60.0 %", "cloud-2"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
