package prefetch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
	"github.com/headstart-mesh/headstart/e2e/prefetch"
	"github.com/headstart-mesh/headstart/e2e/result"
)

func figures(f map[string]float64) prefetch.Part { return prefetch.Part{Figures: f} }

// results have a part of points and parts of figures, as they come from two calls.
func results() prefetch.Results {
	missed := point(10_000_000, []prefetch.Run{off(0, 1000*ms, 500*ms, 0)}, []prefetch.Run{on(1200*ms, 500*ms)})
	good := point(32_000_000, []prefetch.Run{off(0, 1000*ms, 1000*ms, 0)}, []prefetch.Run{on(1000*ms, 1000*ms)})
	return prefetch.Results{
		prefetch.Chain: {Points: []prefetch.Point{missed, good}, Figures: map[string]float64{prefetch.WrongBytes: 5, "failed": 1}},
		"many":         figures(map[string]float64{prefetch.WrongBytes: 2}),
		"large":        figures(map[string]float64{prefetch.GatewayRSS: 3, prefetch.DaemonHeap: 9, prefetch.LinkFraction: 0.93, prefetch.WrongBytes: 0}),
		"hot":          figures(map[string]float64{prefetch.HotRPS: 0.99, prefetch.HotP99: 1.02}),
	}
}

func TestTheSummaryHasTheWorstOfAllParts(t *testing.T) {
	want := result.Summary{
		"bound_excess_max": 4, "io_reduction_min": 0.6, "total_reduction_max": 0.5, "hot_rps_ratio": 0.99, "hot_p99_ratio": 1.02,
		"gateway_rss_mib": 3, "daemon_heap_mib": 9, "link_fraction": 0.93, "wrong_bytes": 7,
	}
	if d := cmp.Diff(want, results().Summary()); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// A wrong answer, and one that failed, is none to go by, in any part.
func TestWrongAndFailedAnswersAreNoResult(t *testing.T) {
	for _, c := range []struct {
		figures map[string]float64
		want    string
	}{
		{map[string]float64{prefetch.WrongBytes: 0, prefetch.ManyFailed: 0, prefetch.Failed("on"): 0, prefetch.HotRPS: 0.1}, ""},
		{map[string]float64{prefetch.WrongBytes: 3}, "3 bytes were wrong"},
		{map[string]float64{prefetch.ManyFailed: 2}, "2 requests failed"},
		{map[string]float64{prefetch.Failed("off"): 1, prefetch.Failed("on"): 4}, "5 requests failed"},
		{map[string]float64{prefetch.Failed("hot_with"): 6, prefetch.Failed("hot_without"): 0}, "6 requests failed"},
	} {
		err := prefetch.Results{"a": figures(c.figures), "b": figures(map[string]float64{prefetch.HotP99: 2})}.Sound()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("of %v: %v, want %q", c.figures, err, c.want)
		}
	}
}

func TestWhatIsNotMeasuredIsNotInTheSummary(t *testing.T) {
	got := prefetch.Results{"many": figures(map[string]float64{prefetch.WrongBytes: 0})}.Summary()
	if d := cmp.Diff(result.Summary{"wrong_bytes": 0}, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// Every figure of the paper is drawn of the parts that are there.
func TestFigures(t *testing.T) {
	all := prefetch.Results{}
	if f := all.Figures(); len(f) != 0 {
		t.Errorf("of nothing: %v", f)
	}
	var points []prefetch.Point
	for _, p := range []step.Passing{step.Direct, step.Redis, step.S3} {
		for _, size := range []int64{1000, 128_000_000} {
			point := point(size, []prefetch.Run{off(0, 1000*ms, 500*ms, 0)}, []prefetch.Run{on(1000*ms, 500*ms)})
			point.Passing = p
			points = append(points, point)
		}
	}
	for _, part := range []string{prefetch.Chain, prefetch.Video, prefetch.Delay} {
		all[part] = prefetch.Part{Points: points}
	}
	panels := map[string]int{}
	for name, p := range all.Figures() {
		panels[name] = len(p)
	}
	if d := cmp.Diff(map[string]int{"fig7.svg": 1, "fig8.svg": 1, "fig9.svg": 4, "fig10.svg": 4, "fig11.svg": 3}, panels); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}
