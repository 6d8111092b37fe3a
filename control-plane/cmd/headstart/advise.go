package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

func adviseCommand(c *cli) *cobra.Command {
	q := admin.CacheQuery{Verb: "advise"}
	cmd := &cobra.Command{
		Use: "advise", Short: "Propose inputs for functions that read by S3",
		Long: `Propose values of headstart.dev/input for functions whose programs read their
objects by S3 on the node, and whose annotation headstart.dev/s3-learn is on.

With such an input, all nodes fetch what a request is going to read, from the first
request on. RIGHT is how often an object that the template names was read, of all times
it could have been. A node fetches by itself what templates name that have proven right.`,
		Example: "  headstart advise -n media",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Namespace = c.cluster.namespace
			return c.cache(cmd, q, printAdvice)
		},
	}
	cmd.Flags().StringVar(&q.Node, "node", "", "only this node (default: all)")
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	c.observedFlag(cmd, &q)
	return cmd
}

// printAdvice lists what nodes have learned, of all nodes together.
func printAdvice(out io.Writer, nodes []admin.CacheNode) error {
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
