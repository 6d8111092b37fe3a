package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// printLearned lists what nodes have learned, of all nodes together.
func printLearned(out io.Writer, nodes []admin.CacheNode) error {
	type template struct{ function, text string }
	type sum struct {
		right, tested, bytes int64
		proven               int
	}
	sums := map[template]sum{}
	for _, n := range nodes {
		for _, e := range n.Entries {
			t, a := template{e.GetAdvice().GetFunction(), e.GetReference()}, e.GetAdvice()
			s := sums[t]
			s.right, s.tested, s.bytes = s.right+a.GetRight(), s.tested+a.GetTested(), max(s.bytes, e.GetBytes())
			if a.GetProven() {
				s.proven++
			}
			sums[t] = s
		}
	}
	rows := [][]string{}
	for _, t := range slices.SortedFunc(maps.Keys(sums), func(a, b template) int {
		return cmp.Or(cmp.Compare(a.function, b.function), cmp.Compare(sums[b].right, sums[a].right), cmp.Compare(a.text, b.text))
	}) {
		s := sums[t]
		if s.tested == 0 {
			continue
		}
		proven := "no"
		if s.proven > 0 {
			proven = fmt.Sprintf("on %d of %d", s.proven, len(nodes))
		}
		rows = append(rows, []string{t.function, t.text, fmt.Sprintf("%d of %d", s.right, s.tested), megabytes(s.bytes), proven})
	}
	return printTable(out, "Nothing has been learned; "+filterapi.AnnotationS3Learn+" has nodes learn.", rows,
		"FUNCTION", "TEMPLATE", "RIGHT", "SIZE", "PROVEN")
}
