package routing

import (
	"math"

	"github.com/headstart-mesh/headstart/e2e/result"
)

// The summary's names.
const (
	P95VsFaaSt       = "p95_vs_faast_max"
	P99VsFaaSt       = "p99_vs_faast_max"
	OverloadVsOracle = "overload_p99_vs_oracle"
	P50VsBest        = "p50_vs_best_max"
	OracleRatio      = "oracle_p99_ratio"
	OracleBurstRatio = "oracle_p99_burst_ratio"
	DrainSeconds     = "drain_s"
	SteadyRebuilds   = "steady_rebuilds"
	CoordinatesP50   = "rtt_err_p50"
	CoordinatesP95   = "rtt_err_p95"
	FilterMicros     = "filter_p50_us"
	FilterRPS        = "filter_rps_ratio"
	FilterMemory     = "filter_memory_growth"
	XDSMillis        = "xds_p99_ms"
	ProbesPerNode    = "probes_per_node_s"
)

// DrainAloneSeconds is drain_s of a node whose next one is far: no bound, as it may well keep
// what it answers sooner nevertheless.
const DrainAloneSeconds = "drain_alone_s"

// Limits are those of all figures of the summary, in their order.
var Limits = []result.Limit{
	{Name: P95VsFaaSt, Limit: 0.5}, {Name: P99VsFaaSt, Limit: 0.5}, {Name: OverloadVsOracle, Limit: 1.1}, {Name: P50VsBest, Limit: 1.05},
	{Name: OracleRatio, Limit: 1.05}, {Name: OracleBurstRatio, Limit: 1.5},
	{Name: DrainSeconds, Limit: 1}, {Name: SteadyRebuilds, Counts: true}, {Name: CoordinatesP50, Limit: 0.1}, {Name: CoordinatesP95, Limit: 0.25},
	{Name: ProbesPerNode, Limit: 8}, {Name: FilterMicros, Limit: 30}, {Name: FilterRPS, Limit: 0.85, AtLeast: true},
	{Name: FilterMemory, Limit: 0.05}, {Name: XDSMillis, Limit: 500},
}

// Part is what one part of the benchmark has measured.
type Part = result.Part[Point]

// Results are all parts by their names, measured together or one after the other.
type Results map[string]Part

// points are those of all parts: the oracle's are another's than the measured ones.
func (r Results) points() []Point {
	var all []Point
	for _, part := range r {
		all = append(all, part.Points...)
	}
	return all
}

// Summary has the worst of each figure.
func (r Results) Summary() result.Summary {
	s := result.Summary{}
	for _, points := range byCase(r.points()) {
		ours, ok := find(points, Ours)
		if !ok {
			continue
		}
		if faast, ok := find(points, FaaSt); ok && ours.Room {
			s.Take(P95VsFaaSt, math.Max, ours.P95/faast.P95)
			s.Take(P99VsFaaSt, math.Max, ours.P99/faast.P99)
		}
		if oracle, ok := find(points, Oracle); ok && !ours.Room {
			s.Take(OverloadVsOracle, math.Max, ours.P99/oracle.P99)
		}
		if best, ok := bestP50(points); ok {
			s.Take(P50VsBest, math.Max, ours.P50/best)
		}
	}
	for _, part := range r {
		s.TakeFigures(Limits, part.Figures)
	}
	return s
}

// share is that of the requests that were completed.
func (p Point) share() float64 { return float64(p.Completed) / float64(p.Sent) }

// bestP50 is that of the others that exist.
func bestP50(points []Point) (best float64, ok bool) {
	for _, p := range points {
		if p.Variant != Ours && p.Variant != Oracle && (!ok || p.P50 < best) {
			best, ok = p.P50, true
		}
	}
	return best, ok
}
