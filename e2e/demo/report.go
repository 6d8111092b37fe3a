package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
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

// summary is what scripts read.
type summary struct {
	rows         []coldrun.Row
	AnswersWrong int
	hot          hot
}

func summarize(results []coldrun.Result, h hot) summary {
	s := summary{hot: h}
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
		"seed":                      coldrun.Seed,
	}
	for _, r := range s.rows {
		maps.Copy(n, r.Numbers("s3_"))
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

func ms(d time.Duration) float64 { return coldrun.Millis(d) }

// show prints the results.
func show(w io.Writer, o options, s summary) error {
	fmt.Fprintf(w, "\nCold requests for a video function at the edge, input in the cloud (%d ms, %d Mbit/s), medians of %d, in ms\n\n",
		2*linkDelay.Milliseconds(), linkRate/1_000_000, repetitions)
	if err := coldrun.Table(w, s.rows); err != nil {
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

	for _, c := range s.checks() {
		verdict := "holds "
		if !c.holds {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s  %-40s %s\n", verdict, c.what, c.got)
	}
	return nil
}

// check is a bound, and what was measured.
type check struct {
	what  string
	got   string
	holds bool
}

func (s summary) checks() []check {
	gap, gapAt := s.gapMax()
	slower := coldrun.Slower(s.rows)
	return []check{
		{"on is faster than off", cmp.Or(strings.Join(slower, "; "), "with every input"), len(slower) == 0},
		{"all answers right and equal", fmt.Sprintf("%d wrong", s.AnswersWrong), s.AnswersWrong == 0},
		{fmt.Sprintf("total <= %.2f x bound + %d ms", totalFactor, totalSlack.Milliseconds()), fmt.Sprintf("%.2f", s.ratioMax()), s.ratioMax() <= totalFactor},
		{fmt.Sprintf("no gap over %d ms in a trace", gapMost.Milliseconds()), fmt.Sprintf("%.1f ms (%s)", ms(gap), gapAt), gap <= gapMost},
		{fmt.Sprintf("hot p50 <= %.2f x without the filter", hotFactor), fmt.Sprintf("%.2f (%.3f ms)", s.hotRatio(), ms(s.hot.with)), s.hotRatio() <= hotFactor},
		{fmt.Sprintf("gateway grows by <= %d MiB with %d MB", gatewayMost, sizes[len(sizes)-1]), fmt.Sprintf("%.1f MiB", s.hot.gatewayMiB), s.hot.gatewayMiB <= gatewayMost},
	}
}
