package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/distinct"
)

// latestMost is how many references of an input `-o json` has: as many as each node keeps.
const latestMost = 8

// observedInput is what an input's template has named, on all nodes together, as `-o json` has it.
type observedInput struct {
	Function string `json:"function"`
	Input    string `json:"input"`
	Template string `json:"template"`
	Requests int64  `json:"requests"`
	Distinct int64  `json:"distinct"`
	// Requests of the function that had nothing that a template names, in which something was missing, there twice or not
	// usable, what that was in one of the latest, and those that named what the store does not allow.
	Unnamed    int64            `json:"unnamed"`
	Incomplete int64            `json:"incomplete"`
	Lacked     string           `json:"lacked,omitempty"`
	Refused    int64            `json:"refused"`
	Latest     []namedReference `json:"latest"`
}

type namedReference struct {
	Reference string    `json:"reference"`
	Node      string    `json:"node"`
	At        time.Time `json:"at"`
}

// observed asks the nodes, and prints what they say together.
func (c *cli) observed(cmd *cobra.Command, q admin.CacheQuery) error {
	client, err := c.target(cmd)
	if err != nil {
		return err
	}
	defer client.Close()
	nodes, err := client.Cache(cmd.Context(), q)
	if err != nil {
		return err
	}
	all, out := observedOf(nodes, q.Namespace), cmd.OutOrStdout()
	if c.output == jsonOutput {
		err = errors.Join(printJSON(out, all), printCacheProblems(cmd.ErrOrStderr(), nodes))
	} else {
		err = errors.Join(printObserved(out, all), printCacheProblems(out, nodes))
	}
	if err == nil && slices.ContainsFunc(nodes, func(n admin.CacheNode) bool { return n.Problem != "" }) {
		err = errCache
	}
	return err
}

// observedOf joins what nodes say of the functions of a namespace; empty: of all.
func observedOf(nodes []admin.CacheNode, namespace string) []observedInput {
	type of struct{ function, input, template string }
	sums, different := map[of]*observedInput{}, map[of]*distinct.Sketch{}
	for _, n := range nodes {
		for _, e := range n.Entries {
			m := e.GetObserved()
			if m == nil || namespace != "" && e.GetNamespace() != namespace {
				continue // of a node that is not asked like that
			}
			key := of{m.GetFunction(), m.GetInput(), e.GetReference()}
			s := sums[key]
			if s == nil {
				s = &observedInput{Function: key.function, Input: key.input, Template: key.template}
				sums[key], different[key] = s, &distinct.Sketch{}
			}
			s.Requests, s.Incomplete, s.Refused = s.Requests+m.GetRequests(), s.Incomplete+m.GetIncomplete(), s.Refused+m.GetRefused()
			s.Unnamed += m.GetUnnamed()
			s.Lacked = cmp.Or(s.Lacked, m.GetField())
			different[key].Join(m.GetSketch())
			for _, r := range m.GetLatest() {
				if r.GetAt().CheckValid() != nil {
					continue
				}
				s.Latest = append(s.Latest, namedReference{r.GetReference(), n.Node, r.GetAt().AsTime()})
			}
		}
	}
	all := []observedInput{}
	for _, key := range slices.SortedFunc(maps.Keys(sums), func(a, b of) int {
		return cmp.Or(cmp.Compare(a.function, b.function), cmp.Compare(a.input, b.input), cmp.Compare(a.template, b.template))
	}) {
		s := sums[key]
		s.Distinct = different[key].Count()
		slices.SortStableFunc(s.Latest, func(a, b namedReference) int { return b.At.Compare(a.At) })
		s.Latest = s.Latest[:min(len(s.Latest), latestMost)]
		all = append(all, *s)
	}
	return all
}

func printObserved(out io.Writer, all []observedInput) error {
	rows := [][]string{}
	for _, i := range all {
		template, incomplete, latest := i.Template, strconv.FormatInt(i.Incomplete, 10), ""
		if i.Input != "" {
			template = i.Input + ": " + template
		}
		if i.Lacked != "" {
			incomplete += fmt.Sprintf(" (%s)", i.Lacked)
		}
		if len(i.Latest) > 0 {
			latest = i.Latest[0].Reference
		}
		rows = append(rows, []string{i.Function, template, strconv.FormatInt(i.Requests, 10), strconv.FormatInt(i.Distinct, 10),
			strconv.FormatInt(i.Unnamed, 10), incomplete, strconv.FormatInt(i.Refused, 10), latest})
	}
	return printTable(out, "No function is observed. Set "+filterapi.AnnotationMode+": observe on a Service to see what its requests name.", rows,
		"FUNCTION", "INPUT", "REQUESTS", "DISTINCT", "UNNAMED", "INCOMPLETE", "REFUSED", "LATEST")
}
