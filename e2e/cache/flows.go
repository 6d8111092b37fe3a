package cache

import (
	"strings"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// The ways of a workflow's data, which are the columns, in ms. The rows are the time until a step has its inputs (down),
// that of its programs (ran), and that until its outputs are where the next step finds them (up).
const (
	FlowWithout = "without"
	FlowCopying = "copying LRU"
	FlowOurs    = "ours"
	FlowFloor   = "store at hand"
	FlowS3      = "S3 on the node" // only in cold chains
)

func drawFlows(points []Point) map[string][]chart.Panel { return drawSteps("flows", points) }

func drawChains(points []Point) map[string][]chart.Panel { return drawSteps("chains", points) }

// drawSteps draws the data's time on its way by steps, as the paper's figures 6 (one node) and 7 (several) do.
func drawSteps(part string, points []Point) map[string][]chart.Panel {
	layers := map[string][]Point{} // of a workflow on some nodes
	var names []string
	for _, p := range points {
		at := strings.LastIndex(p.Case, ", ")
		name, layer := p.Case[:at], p.Case[at+len(", "):]
		if !strings.HasSuffix(layer, " down") && !strings.HasSuffix(layer, " up") {
			continue
		}
		if layers[name] == nil {
			names = append(names, name)
		}
		layers[name] = append(layers[name], Point{Case: layer, Values: p.Values})
	}
	files := map[string][]chart.Panel{}
	for _, name := range names {
		bars := chart.Bars{Title: name, YLabel: "s"}
		for _, p := range layers[name] {
			bars.Layers = append(bars.Layers, p.Case)
		}
		for _, way := range layers[name][0].Values {
			bar := chart.Bar{Label: way.Name}
			for _, p := range layers[name] {
				bar.Values = append(bar.Values, p.Of(way.Name)/millisecondsInOne)
			}
			bars.Bars = append(bars.Bars, bar)
		}
		file := "cache-" + part + "-one.svg"
		if strings.HasSuffix(name, "two nodes") {
			file = "cache-" + part + "-two.svg"
		}
		files[file] = append(files[file], bars)
	}
	return files
}
