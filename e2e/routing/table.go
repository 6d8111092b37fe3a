package routing

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Table prints points, in ms.
func Table(w io.Writer, points []Point) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RTT\tusers\t\tp50\tp95\tp99\tcompleted\taway\theld\tlate\tserved by\t")
	for _, group := range byCase(points) {
		for _, p := range group {
			fmt.Fprintf(t, "%d +- %d\t%d + %d\t%s\t%.1f\t%.1f\t%.1f\t%.1f %%\t%.1f %%\t%.2f\t%.2f\t%s\t\n", p.RTT.Milliseconds(), p.Jitter.Milliseconds(),
				p.Users, p.Users, p.Variant, p.P50, p.P95, p.P99, 100*p.share(), 100*p.Away, p.Held, p.Late, p.servedBy())
		}
	}
	return t.Flush()
}

func (p Point) servedBy() string {
	var all []string
	for _, node := range slices.Sorted(maps.Keys(p.Served)) {
		n := 0
		for _, bin := range p.Served[node] {
			n += bin
		}
		all = append(all, fmt.Sprintf("%s %.0f %%", node, 100*float64(n)/float64(max(p.Completed, 1))))
	}
	return strings.Join(all, ", ")
}
