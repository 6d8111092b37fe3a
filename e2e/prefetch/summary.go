package prefetch

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/result"
)

// The summary's names.
const (
	BoundExcess    = "bound_excess_max"
	IOReduction    = "io_reduction_min"
	TotalReduction = "total_reduction_max"
	HotRPS         = "hot_rps_ratio"
	HotP99         = "hot_p99_ratio"
	GatewayRSS     = "gateway_rss_mib"
	DaemonHeap     = "daemon_heap_mib"
	LinkFraction   = "link_fraction"
	WrongBytes     = "wrong_bytes"
)

// What parts count beside: requests that failed, of many at once, of workflows on each side, and
// of each hot gateway's.
const (
	ManyFailed   = "many_failed"
	failedPrefix = "failed_"
)

// Failed is the figure of a side's workflows that failed and were measured again, or of a
// gateway's requests that did.
func Failed(side string) string { return failedPrefix + side }

// Limits are those of all figures of the summary, in their order.
var Limits = []result.Limit{
	{Name: BoundExcess, Limit: 1}, {Name: IOReduction, Limit: 0.95, AtLeast: true}, {Name: TotalReduction, Limit: 0.46, AtLeast: true},
	{Name: HotRPS, Limit: 0.95, AtLeast: true}, {Name: HotP99, Limit: 1.1}, {Name: GatewayRSS, Limit: 16}, {Name: DaemonHeap, Limit: 64},
	{Name: LinkFraction, Limit: 0.9, AtLeast: true}, {Name: WrongBytes, Counts: true},
}

// Part is what one part of the benchmark has measured.
type Part = result.Part[Point]

// medians are those of points' runs.
func medians(points []Point) (all []Row) {
	for _, point := range points {
		all = append(all, point.Row())
	}
	return all
}

// Results are all parts by their names, measured together or one after the other.
type Results map[string]Part

// Summary has the worst of each figure, but the largest reduction of a total.
func (r Results) Summary() result.Summary {
	s := result.Summary{}
	for _, part := range r {
		for _, row := range medians(part.Points) {
			s.Take(BoundExcess, math.Max, row.Excess())
			s.Take(TotalReduction, math.Max, row.Reduction())
			if share, counts := row.IOReduction(); counts {
				s.Take(IOReduction, math.Min, share)
			}
		}
		s.TakeFigures(Limits, part.Figures)
	}
	return s
}

// Sound tells of answers that were wrong, or failed: what was measured beside them is of something
// else than it should be, however good it looks.
func (r Results) Sound() error {
	var failed float64
	for _, part := range r {
		for name, n := range part.Figures {
			if name == ManyFailed || strings.HasPrefix(name, failedPrefix) {
				failed += n
			}
		}
	}
	var errs []error
	if wrong := r.Summary()[WrongBytes]; wrong > 0 {
		errs = append(errs, fmt.Errorf("%.0f bytes were wrong", wrong))
	}
	if failed > 0 {
		errs = append(errs, fmt.Errorf("%.0f requests failed; the notes say why", failed))
	}
	return errors.Join(errs...)
}
