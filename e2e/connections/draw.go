package connections

import (
	"strings"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// distributions draws how long programs took to have a connection, and how long their containers lived, as the paper's
// figures 5 and 6 do over the runs.
func distributions(points []Point) []chart.Panel {
	return []chart.Panel{
		distribution("main() to a connection, 0.7 ms", points, func(p Point) []float64 { return p.Connecting }),
		distribution("Life of a container, 0.7 ms", points, func(p Point) []float64 { return p.Lifetime }),
	}
}

// distribution draws percentiles. The slowest percent is left out: a single run would decide what there is to see.
func distribution(title string, points []Point, of func(Point) []float64) chart.Lines {
	lines := chart.Lines{Title: title, XLabel: "ms", YLabel: "% of the runs", Dense: true}
	for _, p := range points {
		all := of(p)
		if len(all) == 0 {
			continue
		}
		s := chart.Series{Name: p.Case[strings.LastIndex(p.Case, " ")+1:], Dashed: strings.HasSuffix(p.Case, " direct")}
		for i, v := range all[:len(all)-1] {
			s.X, s.Y = append(s.X, v), append(s.Y, float64(i))
		}
		lines.Series = append(lines.Series, s)
	}
	return lines
}

// lifetimes draws the medians of containers that ask PostgreSQL one query.
func lifetimes(points []Point) []chart.Panel {
	bars := chart.Bars{Title: "Life of a container with a first query", YLabel: "ms", Layers: []string{"order to end"}}
	for _, p := range points {
		if p.Of(Life) > 0 {
			words := strings.Split(p.Case, ", ")
			bars.Bars = append(bars.Bars, chart.Bar{Label: strings.Join(words[1:], " "), Values: []float64{p.Of(Life)}})
		}
	}
	return []chart.Panel{bars}
}
