package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/result"
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
	// downloadMost is what a second cold request for the same object may download, in bytes: that the object has not
	// changed, and what the nodes have to say to each other meanwhile.
	downloadMost = 16 << 10
	// filtersMost is how much memory a gateway's filters may take, in MiB.
	filtersMost = 90
	// refusedMost is how long a gateway that was killed may refuse requests.
	refusedMost = 300 * time.Millisecond
)

// summary is what scripts read.
type summary struct {
	rows         []coldrun.Row
	AnswersWrong int
	hot          hot
	answersLost  int
}

func summarize(results []coldrun.Result, h hot, lost int) summary {
	s := summary{hot: h, answersLost: lost}
	for _, r := range results {
		s.rows = append(s.rows, r.Row(totalSlack))
		s.AnswersWrong += r.Wrong
	}
	return s
}

func (s summary) ratioMax() float64 {
	m := math.Inf(-1)
	for _, r := range s.rows {
		m = max(m, r.Ratio)
	}
	return m
}

func (s summary) gapMax() (m time.Duration, where string) {
	for _, r := range s.rows {
		if r.Gap > m {
			m, where = r.Gap, r.GapAt
		}
	}
	return m, where
}

// downloaded is the most that a cold request for what the node had has downloaded, in bytes.
func (s summary) downloaded() (most uint64) {
	for _, r := range s.rows {
		most = max(most, r.Downloaded())
	}
	return most
}

func (s summary) hotRatio() float64 { return float64(s.hot.with) / float64(s.hot.without) }

func (s summary) numbers() map[string]float64 {
	gap, _ := s.gapMax()
	n := map[string]float64{
		"total_to_bound_max":         s.ratioMax(),
		"hot_p50_ratio":              s.hotRatio(),
		"hot_p50_ms":                 ms(s.hot.with),
		"answers_wrong":              float64(s.AnswersWrong),
		"trace_gap_max_ms":           ms(gap),
		"gateway_memory_growth_mib":  s.hot.gatewayMiB,
		"gateway_filters_mib":        s.hot.filtersMiB,
		"gateway_restart_refused_ms": ms(s.hot.refused),
		"answers_lost":               float64(s.answersLost),
		"again_downloaded_bytes":     float64(s.downloaded()),
		"link_delay_ms":              ms(linkDelay),
		"link_rate_mbit_s":           linkRate / 1e6,
		"repetitions":                repetitions,
		"seed":                       coldrun.Seed,
	}
	for _, r := range s.rows {
		maps.Copy(n, r.Numbers("s3_"))
	}
	return n
}

// title is that of the table.
func title() string {
	return fmt.Sprintf("Cold requests for a video function at the edge, input in the cloud (%d ms, %d Mbit/s), medians of %d, in ms",
		2*linkDelay.Milliseconds(), linkRate/1_000_000, repetitions)
}

func (s summary) write(path string) error {
	gap, where := s.gapMax()
	return coldrun.NewReport(title(), s.numbers(), s.rows, s.checks(), fmt.Sprintf("%.1f ms without a span: %s", ms(gap), where)).Write(path)
}

func ms(d time.Duration) float64 { return coldrun.Millis(d) }

// show prints the results.
func show(w io.Writer, o options, s summary) error {
	fmt.Fprintf(w, "\n%s\n\n", title())
	if err := coldrun.Table(w, coldrun.Lines(s.rows)); err != nil {
		return err
	}

	shown := s.rows[min(1, len(s.rows)-1)]
	fmt.Fprintf(w, "\nOne of the requests, %s with Headstart:\n\n", shown.Label)
	if err := trace.Waterfall(w, coldrun.Typical(shown.Result.On).Trace, trace.WaterfallOptions{Width: terminalWidth(), Color: colored()}); err != nil {
		return err
	}
	svg := filepath.Join(o.out, "timelines.svg")
	if err := coldrun.DrawTimelines(svg, s.rows); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nTimelines of all inputs, off and on: %s\n", relative(svg))
	fmt.Fprintf(w, "Numbers: %s   Logs: %s\n\n", relative(filepath.Join(o.out, "summary.json")), relative(filepath.Join(o.out, "state", "log")))

	return result.Verdicts(w, s.checks())
}

// checks are the bounds with what was measured.
func (s summary) checks() []result.Check {
	gap, _ := s.gapMax()
	slower := coldrun.Slower(s.rows)
	return []result.Check{
		{Figure: "on is faster than off", Bound: "always", Measured: cmp.Or(strings.Join(slower, "; "), "with every input"), Holds: len(slower) == 0},
		{Figure: "answers wrong or unequal", Bound: "0", Measured: fmt.Sprint(s.AnswersWrong), Holds: s.AnswersWrong == 0},
		{Figure: fmt.Sprintf("(total - %d ms) / bound, the largest of all requests", totalSlack.Milliseconds()), Bound: fmt.Sprintf("<= %.2f", totalFactor),
			Measured: fmt.Sprintf("%.2f", s.ratioMax()), Holds: s.ratioMax() <= totalFactor},
		{Figure: "what a second cold request for the same object downloads, at most", Bound: fmt.Sprintf("<= %d KiB", downloadMost>>10),
			Measured: fmt.Sprintf("%.1f KiB", float64(s.downloaded())/(1<<10)), Holds: s.downloaded() <= downloadMost},
		{Figure: "time in a trace that no span explains, the longest", Bound: fmt.Sprintf("<= %d ms", gapMost.Milliseconds()),
			Measured: fmt.Sprintf("%.1f ms", ms(gap)), Holds: gap <= gapMost},
		{Figure: "p50 of a hot request, as a multiple of the same Envoy without the filter", Bound: fmt.Sprintf("<= %.2f", hotFactor),
			Measured: fmt.Sprintf("%.2f (%.3f ms)", s.hotRatio(), ms(s.hot.with)), Holds: s.hotRatio() <= hotFactor},
		{Figure: fmt.Sprintf("growth of the gateway's memory while %d MB pass it as a body", sizes[len(sizes)-1]), Bound: fmt.Sprintf("<= %d MiB", gatewayMost),
			Measured: fmt.Sprintf("%.1f MiB", s.hot.gatewayMiB), Holds: s.hot.gatewayMiB <= gatewayMost},
		{Figure: "the gateway's memory beyond that of the same Envoy without filters", Bound: fmt.Sprintf("<= %d MiB", filtersMost),
			Measured: fmt.Sprintf("%.1f MiB", s.hot.filtersMiB), Holds: s.hot.filtersMiB <= filtersMost},
		{Figure: "time in which a gateway that was killed refuses requests", Bound: fmt.Sprintf("<= %d ms", refusedMost.Milliseconds()),
			Measured: fmt.Sprintf("%.0f ms", ms(s.hot.refused)), Holds: s.hot.refused <= refusedMost},
		{Figure: fmt.Sprintf("answers lost of %d by functions that leave the body unread", 2*ordinaryTries), Bound: "0",
			Measured: fmt.Sprint(s.answersLost), Holds: s.answersLost == 0},
	}
}
