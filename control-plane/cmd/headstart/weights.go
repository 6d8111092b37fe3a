package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func weightsCommand(c *cli) *cobra.Command {
	var gateway string
	cmd := &cobra.Command{
		Use: "weights FUNCTION", Short: "Show how gateways spread a function's requests, and why", Args: cobra.ExactArgs(1),
		Long: `Show which part of a function's requests each gateway sends to each node, and why:
how far nodes are, how long requests take there, how many they work on at a
time, and how many arrive. FUNCTION is NAMESPACE/NAME; without a namespace it is default.

It asks the platform on this machine if one runs, else the control plane in the cluster.`,
		Example: "  headstart weights fire\n  headstart weights city/fire --gateway edge -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.target(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			e, err := client.Weights(cmd.Context(), c.functionName(args[0]))
			if err != nil {
				return err
			}
			if gateway != "" {
				e.Gateways = slices.DeleteFunc(e.Gateways, func(g routing.Gateway) bool { return g.Name != gateway })
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), e)
			}
			return printWeights(cmd.OutOrStdout(), e)
		},
	}
	c.cluster.flags(cmd)
	cmd.Flags().StringVar(&gateway, "gateway", "", "show this gateway only, by its node's name")
	c.outputFlag(cmd)
	return cmd
}

// functionName adds the namespace to a name that has none.
func (c *cli) functionName(name string) string {
	switch {
	case strings.Contains(name, "/"):
		return name
	case c.cluster.namespace != "":
		return c.cluster.namespace + "/" + name
	}
	return "default/" + name
}

// failingLeast is which part of a node's requests has to fail that others answer for it to be
// shown: less is chance.
const failingLeast = 0.01

func printWeights(out io.Writer, e routing.Explanation) error {
	if e.Even != "" {
		_, err := fmt.Fprintf(out, "Requests of %s are spread evenly: %s.\n", nodeapi.Printable(e.Function), nodeapi.Printable(e.Even))
		return err
	}
	_, err := fmt.Fprintf(out, "%s: %s, looked at %s ago. A request is expected to take %s.\n", nodeapi.Printable(e.Function), nodeapi.Printable(e.Policy), span(e.Decided), span(e.Latency))
	var nodes, rows [][]string
	for _, n := range e.Nodes {
		workers := figure(n.Workers)
		if n.Guessed {
			workers += " guessed"
		}
		if n.Doubted {
			workers += ", its word doubted"
		}
		requests := figure(n.Requests)
		if n.Failing > failingLeast {
			requests += ", " + percent(n.Failing) + " fail"
		}
		nodes = append(nodes, []string{n.Name, strconv.Itoa(len(n.Endpoints)), requests, span(n.Service), span(n.Sojourn), figure(n.InFlight), workers, silence(n.Silent)})
	}
	for _, g := range e.Gateways {
		for _, to := range g.To {
			rows = append(rows, []string{g.Name, figure(g.Requests), to.Node, percent(to.Share), percent(to.Wanted), span(to.RTT), way(to), figure(to.Others), span(g.Held)})
		}
	}
	return errors.Join(err,
		printTable(out, "", nodes, "\nNODE", "ENDPOINTS", "REQUESTS/S", "SERVICE", "ON NODE", "IN FLIGHT", "WORKERS", "SILENT"),
		printTable(out, "\nNo such gateway.", rows, "\nGATEWAY", "REQUESTS/S", "TO", "SHARE", "WANTED", "RTT", "FROM", "OTHERS", "HELD"))
}

// way says where a round trip is from.
func way(to routing.To) string {
	if to.RTTAge == 0 {
		return string(to.Source)
	}
	return fmt.Sprintf("%s, %s ago, ±%s", to.Source, span(to.RTTAge), percent(to.RTTError))
}

// silence is empty for one that nobody would notice.
func silence(seconds float64) string {
	if seconds < 1 {
		return ""
	}
	return span(seconds)
}

// figures is how many of a number's digits are shown: measurements have no more.
const figures = 3

func figure(x float64) string { return strconv.FormatFloat(rounded(x), 'f', -1, 64) }

func percent(x float64) string { return figure(100*x) + "%" }

// span is a time in seconds as people read it; empty if it is not known.
func span(seconds float64) string {
	if seconds <= 0 {
		return ""
	}
	d := time.Duration(rounded(seconds) * float64(time.Second))
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	return d.String()
}

// rounded is x to so many figures.
func rounded(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', figures, 64), 64)
	if err != nil { // infinite
		return x
	}
	return y
}
