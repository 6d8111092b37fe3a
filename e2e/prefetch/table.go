package prefetch

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/headstart-mesh/headstart/e2e/coldrun"
)

// Table prints points, in ms; each part by its name and the letter of the model, in the order of time.
func Table(w io.Writer, points []Point) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(
		t,
		"passing\tsize\tadded start\tschedule α\tcold start β\ttransfer δ\texecute γ\toff\ton\tbound\texcess\tI/O less\ttotal less\t",
	)
	for _, r := range medians(points) {
		less := ""
		if share, counts := r.IOReduction(); counts {
			less = fmt.Sprintf("%.1f %%", 100*share)
		}
		part := func(of func(coldrun.Components) time.Duration) string {
			s := ""
			for i, stage := range r.Stages {
				if i > 0 {
					s += " + "
				}
				var longest time.Duration
				for _, b := range stage {
					longest = max(longest, of(b))
				}
				s += fmt.Sprintf("%.0f", coldrun.Millis(longest))
			}
			return s
		}
		fmt.Fprintf(t, "%s\t%s\t%v\t%s\t%s\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.2f\t%s\t%.1f %%\t\n", r.Passing, Label(r.Size), r.Startup,
			part(func(c coldrun.Components) time.Duration { return c.Alpha }), part(func(c coldrun.Components) time.Duration { return c.Beta }),
			part(func(c coldrun.Components) time.Duration { return c.Delta }), part(func(c coldrun.Components) time.Duration { return c.Gamma }),
			coldrun.Millis(r.Off), coldrun.Millis(r.On), coldrun.Millis(r.Bound()), r.Excess(), less, 100*r.Reduction())
	}
	return t.Flush()
}
