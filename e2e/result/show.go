package result

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headstart-mesh/headstart/e2e/chart"
)

// head prints what part was measured when, and of which commit.
func (p Part[Point]) head(w io.Writer, name string) {
	fmt.Fprintf(w, "\n%s, commit %s, %d repetitions, %s, %.0f s\n\n", name, p.Commit, p.Repetitions, p.At.Format(time.DateTime), p.Took)
}

// tail prints the part's figures and notes.
func (p Part[Point]) tail(w io.Writer) {
	for _, figure := range slices.Sorted(maps.Keys(p.Figures)) {
		fmt.Fprintf(w, "%s %.3f\n", figure, p.Figures[figure])
	}
	for _, n := range p.Notes {
		fmt.Fprintln(w, "  ", n)
	}
}

// Check is a bound with what was measured of it.
type Check struct {
	Figure   string `json:"figure"`
	Bound    string `json:"bound"`
	Measured string `json:"measured,omitempty"` // empty: not measured
	Holds    bool   `json:"holds"`
}

// Verdict is a word for it.
func (c Check) Verdict() string {
	switch {
	case c.Measured == "":
		return "not measured"
	case c.Holds:
		return "holds"
	}
	return "MISSED"
}

// Checks has each figure that has a limit.
func Checks(limits []Limit, summary Summary) (all []Check) {
	for _, l := range limits {
		sign := "<="
		if l.AtLeast {
			sign = ">="
		}
		c := Check{Figure: l.Name, Bound: fmt.Sprintf("%s %g", sign, l.Limit)}
		if got, measured := summary[l.Name]; measured {
			c.Measured, c.Holds = fmt.Sprintf("%.3f", got), l.Holds(got)
		}
		all = append(all, c)
	}
	return all
}

// Verdicts prints checks.
func Verdicts(w io.Writer, checks []Check) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range checks {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Figure, cmp.Or(c.Measured, "-"), c.Bound, c.Verdict())
	}
	return t.Flush()
}

// Show prints all parts in the order of their measuring, and how they keep the limits.
func Show[Point any](w io.Writer, parts map[string]Part[Point], table func(io.Writer, []Point) error, checks []Check) error {
	for _, name := range slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(parts[a].At.Compare(parts[b].At), cmp.Compare(a, b))
	}) {
		part := parts[name]
		part.head(w, name)
		if len(part.Points) > 0 {
			if err := table(w, part.Points); err != nil {
				return err
			}
		}
		part.tail(w)
	}
	fmt.Fprintln(w)
	return Verdicts(w, checks)
}

// Draw writes figures, which are panels by file name, into a directory.
func Draw(dir string, figures map[string][]chart.Panel) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, panels := range figures {
		var b strings.Builder
		if err := chart.Write(&b, panels...); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
