package prefetch

import (
	"fmt"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/e2e/chart"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/functions/workflow/step"
)

// The parts whose points are drawn, by their names in Results.
const (
	Chain = "chain" // figures 7, 8 and 9 of the paper
	Video = "video" // figure 10
	Delay = "delay" // figure 11
)

var passings = []step.Passing{step.Direct, step.Redis, step.S3}

// Figures are the paper's figures 7 to 11 with what was measured, by file name.
func (r Results) Figures() map[string][]chart.Panel {
	figures := map[string][]chart.Panel{}
	if rows := medians(r[Chain].Points); len(rows) > 0 {
		largest := slices.MaxFunc(rows, func(a, b Row) int { return int(a.Size - b.Size) }).Size
		figures["fig7.svg"] = []chart.Panel{phases(rows, largest)}
		figures["fig8.svg"] = []chart.Panel{impact(rows, largest)}
		figures["fig9.svg"] = bySize("Chained functions", rows)
	}
	if rows := medians(r[Video].Points); len(rows) > 0 {
		figures["fig10.svg"] = bySize("Video analytics", rows)
	}
	if rows := medians(r[Delay].Points); len(rows) > 0 {
		figures["fig11.svg"] = byStartup(rows)
	}
	return figures
}

func seconds(d time.Duration) float64 { return d.Seconds() }

func of(rows []Row, passing step.Passing) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Passing != passing })
}

func sized(rows []Row, size int64) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Size != size })
}

// phases are the parts of a chain's total; what Headstart leaves of the transfer is what the
// total has above the other parts.
func phases(rows []Row, size int64) chart.Panel {
	bars := chart.Bars{Title: "Chained functions, " + Label(size), YLabel: "s", Layers: []string{"schedule", "cold start", "transfer", "execute"}}
	for _, r := range sized(rows, size) {
		c := r.Stages[0][0]
		for _, t := range []struct {
			label string
			total time.Duration
		}{{"off", r.Off}, {"on", r.On}} {
			bars.Bars = append(bars.Bars, chart.Bar{Label: fmt.Sprintf("%s, %s", r.Passing, t.label),
				Values: []float64{seconds(c.Alpha), seconds(c.Beta), seconds(t.total - r.Floor()), seconds(c.Gamma)}})
		}
	}
	return bars
}

func impact(rows []Row, size int64) chart.Panel {
	bars := chart.Bars{Title: "Impact of I/O, " + Label(size), YLabel: "% of the total", Layers: []string{"I/O"}}
	for _, r := range sized(rows, size) {
		share := func(total time.Duration) []float64 { return []float64{100 * float64(total-r.Floor()) / float64(total)} }
		bars.Bars = append(bars.Bars, chart.Bar{Label: fmt.Sprintf("%s, off", r.Passing), Values: share(r.Off)},
			chart.Bar{Label: fmt.Sprintf("%s, on", r.Passing), Values: share(r.On)})
	}
	return bars
}

func bySize(title string, rows []Row) []chart.Panel {
	x := func(r Row) float64 { return float64(r.Size) / coldrun.Megabyte }
	var panels []chart.Panel
	better := chart.Lines{Title: "Improvement", XLabel: "MB", YLabel: "% of the total", LogX: true}
	for _, p := range passings {
		of := of(rows, p)
		if len(of) == 0 {
			continue
		}
		panels = append(panels, chart.Lines{Title: fmt.Sprintf("%s, %s", title, p), XLabel: "MB", YLabel: "s", LogX: true, Series: latencies(of, x)})
		better.Series = append(better.Series, series(string(p), of, x, func(r Row) float64 { return 100 * r.Reduction() }))
	}
	return append(panels, better)
}

func byStartup(rows []Row) []chart.Panel {
	var panels []chart.Panel
	for _, p := range passings {
		if of := of(rows, p); len(of) > 0 {
			panels = append(panels, chart.Lines{Title: fmt.Sprintf("Added cold start, %s, %s", p, Label(of[0].Size)), XLabel: "s added", YLabel: "s",
				Series: latencies(of, func(r Row) float64 { return r.Startup.Seconds() })})
		}
	}
	return panels
}

func latencies(rows []Row, x func(Row) float64) []chart.Series {
	bound := series("bound", rows, x, func(r Row) float64 { return seconds(r.Bound()) })
	bound.Dashed = true
	return []chart.Series{series("without Headstart", rows, x, func(r Row) float64 { return seconds(r.Off) }),
		series("with", rows, x, func(r Row) float64 { return seconds(r.On) }), bound}
}

func series(name string, rows []Row, x, y func(Row) float64) chart.Series {
	s := chart.Series{Name: name}
	for _, r := range rows {
		s.X, s.Y = append(s.X, x(r)), append(s.Y, y(r))
	}
	return s
}

// Label is a size as people say it, in decimal units.
func Label(size int64) string {
	const kilobyte = 1000
	switch {
	case size >= coldrun.Megabyte*kilobyte:
		return fmt.Sprintf("%g GB", float64(size)/coldrun.Megabyte/kilobyte)
	case size >= coldrun.Megabyte:
		return fmt.Sprintf("%g MB", float64(size)/coldrun.Megabyte)
	}
	return fmt.Sprintf("%g KB", float64(size)/kilobyte)
}
