package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/trace"
)

// savingTrace is a trace for scripts.
type savingTrace struct {
	trace.Trace
	Saved trace.Saved `json:"saved"`
}

// listTraces shows which traces there are.
func (c *cli) listTraces(cmd *cobra.Command, client *admin.Client) error {
	l, err := client.Traces(cmd.Context(), c.cluster.namespace)
	if err != nil {
		return err
	}
	if c.output == jsonOutput {
		return printJSON(cmd.OutOrStdout(), l)
	}
	return printTraces(cmd.OutOrStdout(), l, time.Now())
}

func printTraces(out io.Writer, l trace.Listing, now time.Time) error {
	rows := func(all []trace.Summary) [][]string {
		rows := [][]string{}
		for _, s := range all {
			how := ""
			switch {
			case s.Status == trace.Error:
				how = "failed"
			case s.ColdStart:
				how = "cold"
			}
			ago := max(now.Sub(s.Start).Round(time.Second), 0)
			rows = append(rows, []string{s.ID, s.Function, ago.String(), fmt.Sprintf("%.1f", s.DurationMS), how})
		}
		return rows
	}
	err := errors.Join(
		printTable(out, "No traces yet: each sampled request through a gateway is one.", rows(l.Latest), "LATEST", "FUNCTION", "AGO", "MS", "HOW"),
		printTable(out, "", rows(l.Slowest), "\nSLOWEST", "FUNCTION", "AGO", "MS", "HOW"))
	if l.Unsampled > 0 && err == nil {
		_, err = fmt.Fprintf(out, "\n%d more %s left no trace: not sampled.\n", l.Unsampled, plural(l.Unsampled, "request"))
	}
	return err
}
