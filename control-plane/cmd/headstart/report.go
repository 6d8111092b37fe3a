package main

import (
	"fmt"
	"io"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/advice"
	"github.com/headstart-mesh/headstart/control-plane/history"
)

// report is what has come of Headstart, for scripts.
type report struct {
	Since     time.Time       `json:"since"`
	Functions []advice.Gained `json:"functions"`
}

func reportCommand(c *cli) *cobra.Command {
	var of past
	cmd := &cobra.Command{
		Use: "report", Short: "Show the time and the idle replicas that were saved", Args: cobra.NoArgs,
		Long: `Show what Headstart has saved on a cluster, by the metrics that Prometheus has of it:
replicas that were away while nobody asked for them, and time for which inputs were on
their way while functions started, which requests would have waited longer without.`,
		Example: "  headstart report --since 7d\n  headstart report -n shop -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			known, err := of.open(cmd, &c.cluster)
			if err != nil {
				return err
			}
			functions, err := advice.Report(cmd.Context(), known, known.Window.Step, c.cluster.namespace)
			if err != nil {
				return err
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), report{known.Window.From, functions})
			}
			return printReport(cmd.OutOrStdout(), functions, known.Window)
		},
	}
	of.flags(cmd)
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	return cmd
}

func printReport(out io.Writer, functions []advice.Gained, w history.Window) error {
	rows := [][]string{}
	row := func(name string, g advice.Gained) {
		rows = append(rows, []string{name, hours(g.IdleReplicaSeconds), figure(g.ColdStarts), seconds(g.StartSeconds), seconds(g.InputSeconds), seconds(g.SavedSeconds)})
	}
	var all advice.Gained
	for _, g := range functions {
		row(g.Function, g)
		all = all.Plus(g)
	}
	if len(functions) > 1 {
		row("all", all)
	}
	err := printTable(out, "Prometheus has none of Headstart's metrics: docs/operations/advice.md says how it comes by them.", rows,
		"FUNCTION", "REPLICA-HOURS SAVED", "COLD REQUESTS", "STARTED FOR", "INPUTS CAME FOR", "SAVED")
	if err == nil {
		_, err = fmt.Fprintf(out, "\nOf the last %s.\n", model.Duration(w.Length().Round(time.Second)))
	}
	return err
}
