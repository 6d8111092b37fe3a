package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
)

// The bounds of the demo's own run; what misses one is said plainly.
const (
	// A total with Headstart is at most totalFactor x bound + totalSlack.
	totalFactor = 1.15
	totalSlack  = 50 * time.Millisecond
	// A hot request's median is at most hotFactor x that without the filter.
	hotFactor = 1.25
	// No part of a request longer than gapMost is without a span.
	gapMost = 20 * time.Millisecond
	// gatewayMost is how much the gateway may grow while the largest video passes through
	// it as a request's body, in MiB.
	gatewayMost = 16
)

// components are the parts of a request in Truffle's model (section III.A, equation 3):
// schedule, cold start, transfer, execute.
type components struct{ alpha, beta, delta, gamma time.Duration }

func (c components) bound() time.Duration { return c.alpha + max(c.beta, c.delta) + c.gamma }

// row is one line of the table: medians of the repetitions.
type row struct {
	result
	off, on time.Duration
	components
	// ratio is (on - slack) / bound, the largest: of the medians, and of each request
	// with Headstart by its own parts.
	ratio float64
	gap   time.Duration // the largest of all its requests
	gapAt string        // where
}

// components are taken from the requests without Headstart, where the parts come one
// after the other and do not disturb each other. The transfer is the faster of the
// function's own fetch and Headstart's: no bound is helped by a slow client.
func (r result) components() components {
	c := components{
		alpha: medianOf(r.off, func(q request) time.Duration { return q.phases.Alpha }),
		beta:  medianOf(r.off, func(q request) time.Duration { return q.phases.Beta }),
		gamma: medianOf(r.off, func(q request) time.Duration { return q.exec }),
		delta: min(medianOf(r.off, func(q request) time.Duration { return q.input }),
			medianOf(r.on, func(q request) time.Duration { return q.phases.Delta })),
	}
	return c
}

func toBound(total, bound time.Duration) float64 { return float64(total-totalSlack) / float64(bound) }

func (r result) row() row {
	total := func(q request) time.Duration { return q.total }
	w := row{result: r, off: medianOf(r.off, total), on: medianOf(r.on, total), components: r.components()}
	w.ratio = toBound(w.on, w.bound())
	for _, q := range r.on {
		own := components{alpha: q.phases.Alpha, beta: q.phases.Beta, delta: q.phases.Delta, gamma: q.exec}
		w.ratio = max(w.ratio, toBound(q.total, own.bound()))
	}
	for _, q := range append(slices.Clone(r.off), r.on...) {
		if gap, at := trace.MaxGap(q.trace, ""); gap > w.gap {
			w.gap, w.gapAt = gap, fmt.Sprintf("%s, trace %s, at %.0f ms", r.label, q.trace.ID, ms(at))
		}
	}
	return w
}

func medianOf(requests []request, of func(request) time.Duration) time.Duration {
	all := make([]time.Duration, len(requests))
	for i, q := range requests {
		all[i] = of(q)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// typical is the request with the median total.
func typical(requests []request) request {
	sorted := slices.Clone(requests)
	slices.SortFunc(sorted, func(a, b request) int { return cmp.Compare(a.total, b.total) })
	return sorted[len(sorted)/2]
}

// summary is what scripts read.
type summary struct {
	rows         []row
	AnswersWrong int
	hot          hot
}

func summarize(results []result, h hot) summary {
	s := summary{hot: h}
	for _, r := range results {
		s.rows = append(s.rows, r.row())
		s.AnswersWrong += r.wrong
	}
	return s
}

func (s summary) ratioMax() float64 {
	m := math.Inf(-1)
	for _, r := range s.rows {
		m = max(m, r.ratio)
	}
	return m
}

func (s summary) gapMax() (m time.Duration, where string) {
	for _, r := range s.rows {
		if r.gap > m {
			m, where = r.gap, r.gapAt
		}
	}
	return m, where
}

func (s summary) hotRatio() float64 { return float64(s.hot.with) / float64(s.hot.without) }

func (s summary) numbers() map[string]float64 {
	gap, _ := s.gapMax()
	n := map[string]float64{
		"total_to_bound_max":        s.ratioMax(),
		"hot_p50_ratio":             s.hotRatio(),
		"hot_p50_ms":                ms(s.hot.with),
		"answers_wrong":             float64(s.AnswersWrong),
		"trace_gap_max_ms":          ms(gap),
		"gateway_memory_growth_mib": s.hot.gatewayMiB,
		"link_delay_ms":             ms(linkDelay),
		"link_rate_mbit_s":          linkRate / 1e6,
		"repetitions":               repetitions,
		"seed":                      seed,
	}
	for _, r := range s.rows {
		for name, d := range map[string]time.Duration{"off": r.off, "on": r.on, "alpha": r.alpha, "beta": r.beta, "delta": r.delta, "gamma": r.gamma} {
			n["s3_"+r.key+"_"+name+"_ms"] = ms(d)
		}
	}
	return n
}

func (s summary) write(path string) error {
	b, err := json.MarshalIndent(map[string]any{"summary": s.numbers()}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

func ms(d time.Duration) float64 { return math.Round(float64(d)/float64(time.Millisecond)*1000) / 1000 }

// show prints the results.
func show(w io.Writer, o options, s summary) error {
	fmt.Fprintf(w, "\nCold requests for a video function at the edge, input in the cloud (%d ms, %d Mbit/s), medians of %d, in ms\n\n",
		2*linkDelay.Milliseconds(), linkRate/1_000_000, repetitions)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "input\tHeadstart\talpha\tbeta\tdelta\tgamma\ttotal\tbound\tratio to bound\t")
	for _, r := range s.rows {
		parts := fmt.Sprintf("%.0f\t%.0f\t%.0f\t%.0f", ms(r.alpha), ms(r.beta), ms(r.delta), ms(r.gamma))
		fmt.Fprintf(t, "%s\toff\t%s\t%.0f\t%.0f\t%.2f\t\n", r.label, parts, ms(r.off), ms(r.bound()), float64(r.off)/float64(r.bound()))
		fmt.Fprintf(t, "\ton\t\t\t\t\t%.0f\t\t%.2f\t\n", ms(r.on), float64(r.on)/float64(r.bound()))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nalpha: schedule, beta: cold start, delta: transfer, gamma: execute; bound = alpha + max(beta, delta) + gamma")

	shown := s.rows[min(1, len(s.rows)-1)]
	fmt.Fprintf(w, "\nOne of the requests, %s with Headstart:\n\n", shown.label)
	if err := trace.Waterfall(w, typical(shown.result.on).trace, trace.WaterfallOptions{Width: terminalWidth(), Color: colored()}); err != nil {
		return err
	}
	svg := filepath.Join(o.out, "timelines.svg")
	if err := drawTimelines(svg, s.rows); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTimelines of all inputs, off and on: %s\n", relative(svg))
	fmt.Fprintf(w, "Numbers: %s   Logs: %s\n\n", relative(filepath.Join(o.out, "summary.json")), relative(filepath.Join(o.out, "state", "log")))

	gap, gapAt := s.gapMax()
	checks := []struct {
		what  string
		got   string
		holds bool
	}{
		{"all answers right and equal", fmt.Sprintf("%d wrong", s.AnswersWrong), s.AnswersWrong == 0},
		{fmt.Sprintf("total <= %.2f x bound + %d ms", totalFactor, totalSlack.Milliseconds()), fmt.Sprintf("%.2f", s.ratioMax()), s.ratioMax() <= totalFactor},
		{fmt.Sprintf("no gap over %d ms in a trace", gapMost.Milliseconds()), fmt.Sprintf("%.1f ms (%s)", ms(gap), gapAt), gap <= gapMost},
		{fmt.Sprintf("hot p50 <= %.2f x without the filter", hotFactor), fmt.Sprintf("%.2f (%.3f ms)", s.hotRatio(), ms(s.hot.with)), s.hotRatio() <= hotFactor},
		{fmt.Sprintf("gateway grows by <= %d MiB with %d MB", gatewayMost, sizes[len(sizes)-1]), fmt.Sprintf("%.1f MiB", s.hot.gatewayMiB), s.hot.gatewayMiB <= gatewayMost},
	}
	for _, c := range checks {
		verdict := "holds "
		if !c.holds {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s  %-40s %s\n", verdict, c.what, c.got)
	}
	return nil
}

// drawTimelines draws, for each input, one request without Headstart and one with.
func drawTimelines(path string, rows []row) (err error) {
	var all []trace.Timeline
	for _, r := range rows {
		off, on := typical(r.result.off), typical(r.result.on)
		lines := []trace.Timeline{withOwnFetch(off, r.label+", off"), on.trace.Timeline(r.label + ", on")}
		for i := range lines {
			lines[i].Bound = r.bound()
		}
		all = append(all, lines...)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := trace.Timelines(f, all); err != nil {
		_ = f.Close() // the first error is the one that says something
		return err
	}
	return f.Close()
}

// withOwnFetch splits the execution of a request without Headstart by what the function
// says: first it fetches its input, then it works.
func withOwnFetch(q request, label string) trace.Timeline {
	t := q.trace.Timeline(label)
	for i, b := range t.Bars {
		if b.Phase == trace.Execute {
			split := min(b.Start+q.input, b.End)
			t.Bars[i].Start = split
			t.Bars = append(t.Bars, trace.Bar{Phase: trace.Transfer, Label: "the function fetches", Start: b.Start, End: split})
			break
		}
	}
	return t
}
