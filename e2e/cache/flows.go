package cache

import (
	"strings"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// The ways of a workflow's data. Each has columns for the time until a step has its inputs, for that of its programs,
// and for that until its outputs are where the next step finds them, all in ms.
const (
	FlowWithout = "without"
	FlowCopying = "copying LRU"
	FlowOurs    = "ours"
	FlowFloor   = "store at hand"
)

// drawFlows draws the data's time on its way by steps, as the paper's figures 6 (one node) and 7 (several) do.
func drawFlows(points []Point) map[string][]chart.Panel {
	files := map[string][]chart.Panel{}
	layers := map[string][]Point{} // the steps of a workflow on some nodes
	var order []string
	for _, p := range points {
		name, step := p.Case[:strings.LastIndex(p.Case, ", ")], p.Case[strings.LastIndex(p.Case, ", ")+2:]
		if layers[name] == nil {
			order = append(order, name)
		}
		if step != "all" {
			layers[name] = append(layers[name], Point{Case: step, Values: p.Values})
		}
	}
	for _, name := range order {
		bars := chart.Bars{Title: name, YLabel: "s"}
		for _, way := range []string{FlowWithout, FlowCopying, FlowOurs, FlowFloor} {
			bar := chart.Bar{Label: way}
			for _, p := range layers[name] {
				bar.Values = append(bar.Values, p.Of(way+" down")/millisecondsInOne, p.Of(way+" up")/millisecondsInOne)
			}
			bars.Bars = append(bars.Bars, bar)
		}
		for _, p := range layers[name] {
			bars.Layers = append(bars.Layers, p.Case+" down", p.Case+" up")
		}
		file := "cache-flows-one.svg"
		if strings.HasSuffix(name, "two nodes") {
			file = "cache-flows-two.svg"
		}
		files[file] = append(files[file], bars)
	}
	return files
}
