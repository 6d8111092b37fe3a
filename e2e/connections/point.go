// Package connections is what the benchmark of connections that are in place before the function starts makes of its
// measurements. What measures is in cmd/bench-connections.
package connections

import (
	"io"
	"math"
	"slices"

	"github.com/headstart-mesh/headstart/e2e/cache"
)

// Point is a line of a part's table: what programs have measured that are connected in one way to a server at one
// distance.
type Point struct {
	cache.Point
	// Connecting and Lifetime have the 101 percentiles of what a figure draws, in ms, if one does.
	Connecting []float64 `json:"connecting,omitempty"`
	Lifetime   []float64 `json:"lifetime,omitempty"`
}

// Table prints points.
func Table(w io.Writer, points []Point) error {
	rows := make([]cache.Point, len(points))
	for i, p := range points {
		rows[i] = p.Point
	}
	return cache.Table(w, rows)
}

// Quantile is the value that the share q of the values does not exceed, by the nearest rank; there is at least one
// value.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// percents are those of Percentiles.
const percents = 100

// Percentiles are the values' from 0 to 100, for figures.
func Percentiles(values []float64) []float64 {
	all := make([]float64, percents+1)
	for i := range all {
		all[i] = Quantile(values, float64(i)/percents)
	}
	return all
}

// The columns of what programs report.
const (
	Usable = "usable ms"
	First  = "first answer ms"
	Life   = "life ms"
)
