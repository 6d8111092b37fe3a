package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
)

func statusCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show nodes, functions, instances and events", Args: cobra.NoArgs,
		Long: `Show the nodes with their gateways, the functions with their instances, what went wrong
lately and what to mend, and how to call a function.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), s)
			}
			return printStatus(cmd.OutOrStdout(), s, time.Now())
		},
	}
	c.outputFlag(cmd)
	return cmd
}

// printStatus writes one table per kind, each with columns of its own.
func printStatus(out io.Writer, s admin.Status, now time.Time) error {
	nodes, functions, events := [][]string{}, [][]string{}, [][]string{}
	for _, n := range s.Nodes {
		nodes = append(nodes, []string{n.Name, n.Gateway, fmt.Sprint(n.Instances), n.Version})
	}
	for _, f := range s.Functions {
		functions = append(functions, []string{f.Name, host(f), state(f), f.Input})
		for _, e := range f.Events {
			what := e.Reason + ": " + e.Message
			if e.Field != "" {
				what += " [" + e.Field + "]"
			}
			ago := max(now.Sub(e.Last).Round(time.Second), 0)
			events = append(events, []string{f.Name, ago.String(), fmt.Sprint(e.Count), e.Node, what})
		}
	}
	err := errors.Join(
		printTable(out, "No node is connected; the log of headstart-node says why.", nodes, "NODE", "GATEWAY", "INSTANCES", "VERSION"),
		printTable(out, "\nNo functions; deploy one by `headstart apply -f service.yaml`.", functions, "\nFUNCTION", "HOST", "STATE", "INPUT"),
		printTable(out, "", events, "\nFUNCTION", "AGO", "TIMES", "NODE", "EVENT"))
	i := slices.IndexFunc(s.Functions, func(f admin.Function) bool { return !f.Deleting })
	if i < 0 || len(s.Nodes) == 0 {
		return err
	}
	_, e := fmt.Fprintf(out, "\nTo call a function, name its host to any gateway:\n  curl -H 'Host: %s' %s/\n", printable(host(s.Functions[i])), printable(s.Nodes[0].Gateway))
	return errors.Join(err, e)
}

// host is the first of the function's hosts.
func host(f admin.Function) string {
	if len(f.Hosts) == 0 {
		return ""
	}
	return f.Hosts[0]
}

func state(f admin.Function) string {
	var words []string
	if f.Deleting {
		words = append(words, "deleting")
	}
	for _, in := range f.Instances {
		words = append(words, fmt.Sprintf("%s on %s", strings.ToLower(string(in.Phase)), in.Node))
	}
	if len(words) == 0 {
		return "cold"
	}
	return strings.Join(words, ", ")
}

// printTable writes the rows below their header, or what is to be said when there are none.
func printTable(out io.Writer, none string, rows [][]string, header ...string) error {
	if len(rows) == 0 {
		if none == "" {
			return nil
		}
		_, err := fmt.Fprintln(out, none)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, strings.Join(header, "\t"))
	for _, row := range rows {
		for i, cell := range row {
			if row[i] = printable(cell); cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

// printable keeps what requests and functions say from moving the terminal's cursor, or
// worse: events quote headers and object keys.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
