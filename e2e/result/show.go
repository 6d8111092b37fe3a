package result

import (
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

// head prints what part was measured when.
func (p Part[Point]) head(w io.Writer, name string) {
	fmt.Fprintf(w, "\n%s, %d repetitions, %s, %.0f s\n\n", name, p.Repetitions, p.At.Format(time.DateTime), p.Took)
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

// Verdicts prints each figure that has a limit beside it.
func Verdicts(w io.Writer, limits []Limit, summary Summary) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range limits {
		sign, verdict := "<=", "MISSED"
		if l.AtLeast {
			sign = ">="
		}
		got, measured := summary[l.Name]
		switch {
		case !measured:
			fmt.Fprintf(t, "%s\t-\t%s %g\tnot measured\n", l.Name, sign, l.Limit)
			continue
		case l.Holds(got):
			verdict = "holds"
		}
		fmt.Fprintf(t, "%s\t%.3f\t%s %g\t%s\n", l.Name, got, sign, l.Limit, verdict)
	}
	return t.Flush()
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
