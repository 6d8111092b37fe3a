package coldrun

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/headstart-mesh/headstart/e2e/timeline"
)

// Components are the parts of a request in Truffle's model (section III.A, equation 3):
// schedule, cold start, transfer, execute.
type Components struct{ Alpha, Beta, Delta, Gamma time.Duration }

// Bound is what overlap alone can reach: the model's equation for requests whose transfer
// hides behind the cold start.
func (c Components) Bound() time.Duration { return c.Alpha + max(c.Beta, c.Delta) + c.Gamma }

// Row is one line of the table: medians of the repetitions.
type Row struct {
	Result
	Off, On time.Duration
	Again   time.Duration // of what the node had; 0: not measured
	Components
	// Ratio is (on - slack) / bound, the largest: of the medians, and of each request
	// with Headstart by its own parts. Of a relayed one these are not known: then it is of
	// the medians alone.
	Ratio float64
	Gap   time.Duration // the largest of all its requests
	GapAt string        // where
}

// components are taken from the requests without Headstart, where the parts come one
// after the other and do not disturb each other. The transfer is the faster of the
// function's own fetch and Headstart's: no bound is helped by a slow client.
func (r Result) components() Components {
	c := Components{
		Alpha: medianOf(r.Off, func(q Request) time.Duration { return q.Phases.Alpha }),
		Beta:  medianOf(r.Off, func(q Request) time.Duration { return q.Phases.Beta }),
		Gamma: medianOf(r.Off, func(q Request) time.Duration { return q.Exec }),
		Delta: min(medianOf(r.Off, func(q Request) time.Duration { return q.Input }),
			medianOf(r.On, func(q Request) time.Duration { return q.Phases.Delta })),
	}
	return c
}

func toBound(total, slack, bound time.Duration) float64 { return float64(total-slack) / float64(bound) }

// Row sums the case up. slack is what a total may exceed its bound by in any case.
func (r Result) Row(slack time.Duration) Row {
	total := func(q Request) time.Duration { return q.Total }
	w := Row{Result: r, Off: medianOf(r.Off, total), On: medianOf(r.On, total), Components: r.components()}
	w.Ratio = toBound(w.On, slack, w.Bound())
	for _, q := range r.On {
		if r.Relayed {
			break
		}
		own := Components{Alpha: q.Phases.Alpha, Beta: q.Phases.Beta, Delta: q.Phases.Delta, Gamma: q.Exec}
		w.Ratio = max(w.Ratio, toBound(q.Total, slack, own.Bound()))
	}
	if len(r.Again) > 0 {
		w.Again = medianOf(r.Again, total)
	}
	for _, q := range slices.Concat(r.Off, r.On, r.Again) {
		if gap, at := timeline.MaxGap(q.Trace); gap > w.Gap {
			w.Gap, w.GapAt = gap, fmt.Sprintf("%s, trace %s, at %.0f ms", r.Label, q.Trace.ID, Millis(at))
		}
	}
	return w
}

func medianOf(requests []Request, of func(Request) time.Duration) time.Duration {
	all := make([]time.Duration, len(requests))
	for i, q := range requests {
		all[i] = of(q)
	}
	return Median(all)
}

// Median of at least one duration, the upper one of two.
func Median(all []time.Duration) time.Duration {
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// Typical is the request with the median total.
func Typical(requests []Request) Request {
	sorted := slices.Clone(requests)
	slices.SortFunc(sorted, func(a, b Request) int { return cmp.Compare(a.Total, b.Total) })
	return sorted[len(sorted)/2]
}

// DrawTimelines draws, for each input, one request without Headstart and one with.
func DrawTimelines(path string, rows []Row) (err error) {
	var all []timeline.Timeline
	for _, r := range rows {
		off, on := Typical(r.Result.Off), Typical(r.Result.On)
		lines := []timeline.Timeline{withOwnFetch(off, r.Label+", off"), timeline.Of(on.Trace, r.Label+", on")}
		if r.Relayed {
			lines = []timeline.Timeline{withoutTrace(off, r.Label+", off"), withOwnExecution(on, r.Label+", on")}
		}
		if r.Again > 0 {
			lines = append(lines, timeline.Of(Typical(r.Result.Again).Trace, r.Label+", again"))
		}
		for i := range lines {
			lines[i].Bound = r.Bound()
		}
		all = append(all, lines...)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := timeline.Draw(f, all); err != nil {
		_ = f.Close() // the first error is the one that says something
		return err
	}
	return f.Close()
}

// withOwnFetch splits the execution of a request without Headstart by what the function
// says: first it fetches its input, then it works.
func withOwnFetch(q Request, label string) timeline.Timeline {
	t := timeline.Of(q.Trace, label)
	for i, b := range t.Bars {
		if b.Phase == timeline.Execute {
			split := min(b.Start+q.Input, b.End)
			t.Bars[i].Start = split
			t.Bars = append(t.Bars, timeline.Bar{
				Phase: timeline.Transfer, Label: "the function fetches", Start: b.Start, End: split,
			})
			break
		}
	}
	return t
}

// withoutTrace draws a request of which only the function has said something.
func withoutTrace(q Request, label string) timeline.Timeline {
	started, fetched := q.Phases.Beta, q.Phases.Beta+q.Input
	return timeline.Timeline{Label: label, Total: q.Total, Bars: []timeline.Bar{
		{Phase: timeline.ColdStart, End: started},
		{Phase: timeline.Transfer, Label: "the function fetches", Start: started, End: fetched},
		{Phase: timeline.Execute, Start: fetched, End: q.Total}}}
}

// withOwnExecution adds to a relayed request what the function says: it worked last.
func withOwnExecution(q Request, label string) timeline.Timeline {
	t := timeline.Of(q.Trace, label)
	began := max(0, t.Total-q.Exec)
	for i, b := range t.Bars {
		if b.Phase == timeline.ColdStart {
			t.Bars[i].End = min(b.End, began)
		}
	}
	t.Bars = append(t.Bars, timeline.Bar{Phase: timeline.Execute, Start: began, End: t.Total})
	return t
}

// Slower are the inputs that Headstart made no faster.
func Slower(rows []Row) (inputs []string) {
	for _, r := range rows {
		if r.On >= r.Off {
			inputs = append(inputs, fmt.Sprintf("%s: on %.0f ms, off %.0f ms", r.Label, Millis(r.On), Millis(r.Off)))
		}
	}
	return inputs
}

// Millis is d in milliseconds, to the microsecond.
func Millis(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*1000) / 1000
}

// Numbers are a row's, for scripts; names begin with prefix and the case's key.
func (r Row) Numbers(prefix string) map[string]float64 {
	n := map[string]float64{}
	for name, d := range map[string]time.Duration{"off": r.Off, "on": r.On, "alpha": r.Alpha, "beta": r.Beta, "delta": r.Delta, "gamma": r.Gamma} {
		n[prefix+r.Key+"_"+name+"_ms"] = Millis(d)
	}
	if len(r.Result.Again) > 0 {
		n[prefix+r.Key+"_again_ms"], n[prefix+r.Key+"_again_bytes"] = Millis(r.Again), float64(r.Downloaded())
	}
	return n
}

// Downloaded is the most that a request for what the node had has downloaded, in bytes.
func (r Row) Downloaded() (most uint64) {
	for _, q := range r.Result.Again {
		most = max(most, q.Downloaded)
	}
	return most
}

// Line is a row as it is printed, in ms.
type Line struct {
	Label string  `json:"label"`
	Alpha float64 `json:"alpha"`
	Beta  float64 `json:"beta"`
	Delta float64 `json:"delta"`
	Gamma float64 `json:"gamma"`
	Bound float64 `json:"bound"`
	Off   float64 `json:"off"`
	On    float64 `json:"on"`
	Again float64 `json:"again,omitempty"` // 0: not measured
}

func (r Row) line() Line {
	return Line{Label: r.Label, Alpha: Millis(r.Alpha), Beta: Millis(r.Beta), Delta: Millis(r.Delta), Gamma: Millis(r.Gamma),
		Bound: Millis(r.Bound()), Off: Millis(r.Off), On: Millis(r.On), Again: Millis(r.Again)}
}

// Lines are those of all rows.
func Lines(rows []Row) (all []Line) {
	for _, r := range rows {
		all = append(all, r.line())
	}
	return all
}

// Table prints lines: each part by its name and the model's letter, in the order of time.
func Table(w io.Writer, lines []Line) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "input\tHeadstart\tschedule α\tcold start β\ttransfer δ\texecute γ\ttotal\tbound\ttotal/bound\t")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\toff\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t\n", l.Label, l.Alpha, l.Beta, l.Delta, l.Gamma, l.Off, l.Bound, l.Off/l.Bound)
		fmt.Fprintf(t, "\ton\t\t\t\t\t%.0f\t\t%.2f\t\n", l.On, l.On/l.Bound)
		if l.Again > 0 {
			fmt.Fprintf(t, "\tagain\t\t\t\t\t%.0f\t\t%.2f\t\n", l.Again, l.Again/l.Bound)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\nbound = schedule + max(cold start, transfer) + execute")
	return err
}

// Draw draws the line off and on, from its medians. Off, the time between cold start and execution
// is the function's own fetch.
func (l Line) Draw(w io.Writer) error {
	scheduled, started, bound := ofMillis(l.Alpha), ofMillis(l.Alpha+l.Beta), ofMillis(l.Bound)
	row := func(suffix string, total float64, transfer timeline.Bar) timeline.Timeline {
		return timeline.Timeline{Label: l.Label + suffix, Total: ofMillis(total), Bound: bound, Bars: []timeline.Bar{
			{Phase: timeline.Schedule, End: scheduled}, {Phase: timeline.ColdStart, Start: scheduled, End: started},
			transfer,
			{Phase: timeline.Execute, Start: ofMillis(total - l.Gamma), End: ofMillis(total)}}}
	}
	return timeline.Draw(w, []timeline.Timeline{
		row(", off", l.Off, timeline.Bar{
			Phase: timeline.Transfer, Label: "the function fetches", Start: started, End: ofMillis(l.Off - l.Gamma),
		}),
		row(", on", l.On, timeline.Bar{
			Phase: timeline.Transfer, Label: "Headstart fetches", Start: scheduled, End: ofMillis(l.Alpha + l.Delta),
		}),
	})
}

func ofMillis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
