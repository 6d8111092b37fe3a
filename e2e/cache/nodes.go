package cache

import (
	"strings"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// The parts that are measured on nodes.
const (
	Hits      = "hits"
	Misses    = "misses"
	Volumes   = "volumes"
	Peers     = "peers"
	Flows     = "flows"
	Origin    = "origin"
	Broadcast = "broadcast"
)

// Their columns.
const (
	Without           = "without ms"          // each request fetches
	Copying           = "copying LRU ms"      // the paper's cache: a hash, and a copy
	Asked             = "asked ms"            // a hit, after the store was asked
	Fresh             = "fresh ms"            // a hit
	Floor             = "store at hand ms"    // without the link, and without a cache
	Reduction         = "less %"              // Asked than Without
	CopyingReduction  = "less with copying %" // Copying than Without
	ColdStart         = "cold start ms"
	millisecondsInOne = 1000
)

// drawHits draws what it takes to have an object, as the paper's figures 6 and 7 do: a group of bars for each size.
func drawHits(points []Point) map[string][]chart.Panel {
	var panels []chart.Panel
	for _, p := range points {
		if p.Of(Without) == 0 {
			continue // it has no other columns
		}
		bars := chart.Bars{Title: "To have " + p.Case, YLabel: "s", Layers: []string{"on its way"}}
		for _, name := range []string{Without, Copying, Asked, Fresh, Floor} {
			bars.Bars = append(bars.Bars, chart.Bar{Label: strings.TrimSuffix(name, " ms"), Values: []float64{p.Of(name) / millisecondsInOne}})
		}
		panels = append(panels, bars)
	}
	return map[string][]chart.Panel{"cache-hits.svg": panels}
}

// drawVolumes draws cold starts with volumes and without.
func drawVolumes(points []Point) map[string][]chart.Panel {
	bars := chart.Bars{Title: "Cold start with a volume of 500 MB", YLabel: "s", Layers: []string{"until the program answers"}}
	for _, p := range points {
		label, _, _ := strings.Cut(p.Case, " (")
		bars.Bars = append(bars.Bars, chart.Bar{Label: label, Values: []float64{p.Of(ColdStart) / millisecondsInOne}})
	}
	return map[string][]chart.Panel{"cache-volumes.svg": {bars}}
}
