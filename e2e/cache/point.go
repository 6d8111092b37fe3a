// Package cache is what the benchmark of the node's cache makes of its measurements. What measures is in
// cmd/bench-cache.
package cache

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// Point is a line of a part's table.
type Point struct {
	Case   string  `json:"case"`
	Values []Value `json:"values"` // in the order of the columns
}

// Value is one of a point's columns. Its name has the unit.
type Value struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Of returns the value of a column, 0 if there is none.
func (p Point) Of(name string) float64 {
	for _, v := range p.Values {
		if v.Name == name {
			return v.Value
		}
	}
	return 0
}

// Table prints points, with a column for each name in the order in which they come first.
func Table(w io.Writer, points []Point) error {
	var names []string
	for _, p := range points {
		for _, v := range p.Values {
			if !slices.Contains(names, v.Name) {
				names = append(names, v.Name)
			}
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range names {
		fmt.Fprintf(t, "\t%s", name)
	}
	fmt.Fprintln(t, "\t")
	for _, p := range points {
		fmt.Fprint(t, p.Case)
		for _, name := range names {
			if slices.ContainsFunc(p.Values, func(v Value) bool { return v.Name == name }) {
				fmt.Fprintf(t, "\t%s", number(p.Of(name)))
			} else {
				fmt.Fprint(t, "\t")
			}
		}
		fmt.Fprintln(t, "\t")
	}
	return t.Flush()
}

// number has four digits, or all of an integer's.
func number(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}
