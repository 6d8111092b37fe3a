package cache

import (
	"strings"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// The parts that are measured on nodes.
const (
	Hits      = "hits"
	Links     = "links"
	Misses    = "misses"
	Volumes   = "volumes"
	Peers     = "peers"
	Flows     = "flows"
	Origin    = "origin"
	Broadcast = "broadcast"
	S3        = "s3"
	Chains    = "chains"
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
	LinkRate          = "link MB/s"
	Speedup           = "speedup"              // Without over Asked
	CopyingSpeedup    = "speedup with copying" // Without over Copying
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

// drawLinks draws how much faster an object is there than without a cache, over the link's rate, as the paper's figure 8
// does over the ratio of the disk's and the network's.
func drawLinks(points []Point) map[string][]chart.Panel {
	panel := chart.Lines{Title: "To have 100 MB, times faster than without", XLabel: "MB/s of the link", YLabel: "times"}
	for _, s := range []struct{ name, column string }{{"ours", Speedup}, {"copying LRU", CopyingSpeedup}} {
		line := chart.Series{Name: s.name, Dashed: s.column == CopyingSpeedup}
		for _, p := range points {
			line.X, line.Y = append(line.X, p.Of(LinkRate)), append(line.Y, p.Of(s.column))
		}
		panel.Series = append(panel.Series, line)
	}
	return map[string][]chart.Panel{"cache-links.svg": {panel}}
}
