package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func statusCommand(c *cli) *cobra.Command {
	var failing bool
	cmd := &cobra.Command{
		Use: "status [FUNCTION...]", Short: "Show nodes, functions, instances and events",
		Long: `Show the nodes with their gateways, the functions with their instances, recent errors
with their fixes, problems of routing, and how to call a function.

It asks the platform on this machine if one runs, else the control plane in the cluster.`,
		Example: "  headstart status\n  headstart status fire\n  headstart status --failing\n  headstart status --context production -n video",
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.target(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			s.Functions = in(c.cluster.namespace, s.Functions)
			s.Routing = slices.DeleteFunc(s.Routing, func(p routing.Problem) bool {
				return p.Function != "" && c.cluster.namespace != "" && !strings.HasPrefix(p.Function, c.cluster.namespace+"/")
			})
			if s, err = c.only(s, args); err != nil {
				return err
			}
			out, now := cmd.OutOrStdout(), time.Now()
			switch {
			case failing && c.output == jsonOutput:
				return printJSON(out, onlyFailing(s, now))
			case c.output == jsonOutput:
				return printJSON(out, s)
			case failing:
				return printFailing(out, s, now)
			}
			return printStatus(out, s, now)
		},
	}
	cmd.Flags().BoolVar(&failing, "failing", false, "show only current problems, and those of the last 15 minutes")
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	return cmd
}

// in returns the functions of the namespace, all if it is empty.
func in(namespace string, functions []admin.Function) []admin.Function {
	if namespace == "" {
		return functions
	}
	return slices.DeleteFunc(slices.Clone(functions), func(f admin.Function) bool { return !strings.HasPrefix(f.Name, namespace+"/") })
}

// noNode is written in place of a table of nodes.
const noNode = "No node is connected; the log of headstart-node says why."

// printStatus writes all there is.
func printStatus(out io.Writer, s admin.Status, now time.Time) error {
	noFunction := "\nNo functions; deploy one by `headstart apply -f service.yaml`."
	if s.Platform == admin.Kubernetes {
		noFunction = "\nNo functions; a Service becomes one by an annotation (docs/reference/annotations.md)."
	}
	return printTables(out, s, now, noNode, noFunction)
}

// printTables writes one table per kind, each with columns of its own, and what is to be said
// where there are no nodes and no functions.
func printTables(out io.Writer, s admin.Status, now time.Time, noNode, noFunction string) error {
	nodes, functions, events := [][]string{}, [][]string{}, [][]string{}
	for _, n := range s.Nodes {
		nodes = append(nodes, []string{n.Name, n.Gateway, fmt.Sprint(n.Instances), n.Version})
	}
	header := []string{"\nFUNCTION", "HOST", "STATE", "INPUT"}
	if s.Platform == admin.Kubernetes {
		header = []string{"\nFUNCTION", "HOST", "STATE", "SCALED BY", "INPUT"}
	}
	for _, f := range s.Functions {
		row := []string{f.Name, host(f), state(f), inputs(f)}
		if s.Platform == admin.Kubernetes {
			row = slices.Insert(row, 3, f.Scaler)
		}
		functions = append(functions, row)
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
		printControlPlanes(out, s.ControlPlanes),
		printParts(out, s.Parts, now),
		printTable(out, noNode, nodes, "NODE", "GATEWAY", "INSTANCES", "VERSION"),
		printTable(out, "", nodeRows(s.Nodes), "\nNODE", "PROBLEM", "FIX"),
		printTable(out, "", siteRows(s.Nodes), "\nSITE", "NODES"),
		printTable(out, noFunction, functions, header...),
		printTable(out, "", connectionRows(s.Functions), "\nFUNCTION", "CONNECTIONS"),
		printTable(out, "", events, "\nFUNCTION", "AGO", "TIMES", "NODE", "EVENT"),
		printLastLines(out, s.Functions),
		printTable(out, "", routingRows(s.Routing), "\nROUTING OF", "AT GATEWAYS", "PROBLEM"),
		printMesh(out, s.Mesh))
	i := slices.IndexFunc(s.Functions, func(f admin.Function) bool { return !f.Deleting })
	if i < 0 || len(s.Nodes) == 0 || s.Nodes[0].Gateway == "" { // a mesh's gateways have addresses that we do not know
		return err
	}
	_, e := fmt.Fprintf(out, "\nTo call a function, name its host to any gateway:\n  curl %s %s/\n", nodeapi.Printable(curlOptions(s.Functions[i])), nodeapi.Printable(s.Nodes[0].Gateway))
	return errors.Join(err, e)
}

// curlOptions are what curl has to be told for a request that names the function and its input.
func curlOptions(f admin.Function) string {
	options := fmt.Sprintf("-H 'Host: %s'", host(f))
	if f.Input == policy.InputBody {
		return options + " --data-binary @FILE"
	}
	templates, _ := reference.ParseTemplates(reference.NewInputs(f.Input, f.Inputs)) // none: it has no input
	for _, header := range templates.Headers() {
		options += fmt.Sprintf(" -H '%s: VALUE'", header)
	}
	for i, parameter := range templates.Parameters() {
		if i == 0 {
			options += " -G" // what follows is the query's
		}
		options += fmt.Sprintf(" --data-urlencode '%s=VALUE'", parameter)
	}
	return options
}

// inputs are those of a function as the table of functions has them.
func inputs(f admin.Function) string {
	all := []string{f.Input}
	for _, name := range slices.Sorted(maps.Keys(f.Inputs)) {
		all = append(all, name+": "+f.Inputs[name])
	}
	given := strings.TrimPrefix(strings.Join(all, ", "), ", ")
	if f.Observed {
		given += " (observed)"
	}
	return given
}

// printControlPlanes writes which there are, if there is more to say than that one is.
func printControlPlanes(out io.Writer, all []admin.ControlPlane) error {
	if len(all) < 2 {
		return nil
	}
	rows := [][]string{}
	for _, c := range all {
		role := ""
		if c.InCharge {
			role = "yes"
		}
		rows = append(rows, []string{c.Name, role, fmt.Sprint(c.Nodes), c.Version, c.Problem})
	}
	if err := printTable(out, "", rows, "CONTROL PLANE", "IN CHARGE", "NODES", "VERSION", "PROBLEM"); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

func nodeRows(nodes []admin.Node) [][]string {
	rows := [][]string{}
	for _, n := range nodes {
		for _, p := range n.Problems {
			rows = append(rows, []string{n.Name, p.Message, p.Fix})
		}
	}
	return rows
}

// connectionRows are the functions with connections.
func connectionRows(functions []admin.Function) [][]string {
	rows := [][]string{}
	for _, f := range functions {
		if len(f.Connections) > 0 {
			rows = append(rows, []string{f.Name, strings.Join(f.Connections, ", ")})
		}
	}
	return rows
}

// siteRows are the sites, whose nodes share the objects that they hold.
func siteRows(nodes []admin.Node) [][]string {
	rows := [][]string{}
	for _, n := range nodes {
		i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == n.Site })
		switch {
		case n.Site == "":
		case i < 0:
			rows = append(rows, []string{n.Site, n.Name})
		default:
			rows[i][1] += ", " + n.Name
		}
	}
	return rows
}

// shownGateways is how many names fit a line.
const shownGateways = 3

func routingRows(problems []routing.Problem) [][]string {
	rows := [][]string{}
	for _, p := range problems {
		gateways := strings.Join(p.Gateways[:min(len(p.Gateways), shownGateways)], ", ")
		if more := len(p.Gateways) - shownGateways; more > 0 {
			gateways += fmt.Sprintf(" and %d more", more)
		}
		function := p.Function
		if function == "" {
			function = "all functions"
		}
		rows = append(rows, []string{function, gateways, p.Message})
	}
	return rows
}

// host is the first of the function's hosts.
func host(f admin.Function) string {
	if len(f.Hosts) == 0 {
		return ""
	}
	return f.Hosts[0]
}

// printMesh writes what keeps the mesh's gateways from what they need.
func printMesh(out io.Writer, m *admin.Mesh) error {
	if m == nil {
		return nil
	}
	if !m.Installed {
		_, err := fmt.Fprintln(out, "\nIstio is not installed: no gateway sends requests here.")
		return err
	}
	rows := [][]string{}
	for _, p := range m.Problems {
		rows = append(rows, []string{p.Object, p.Cause + ": " + p.Message, p.Fix})
	}
	return printTable(out, "", rows, "\nMESH", "PROBLEM", "FIX")
}

// state counts the instances that are equally far on a node.
func state(f admin.Function) string {
	var words []string
	if f.Deleting {
		words = append(words, "deleting")
	}
	if f.Refused {
		words = append(words, "annotations refused")
	}
	if f.Workflow != "" {
		words = append(words, "workflow "+f.Workflow)
	}
	count := map[string]int{}
	var order []string
	for _, in := range f.Instances {
		word := fmt.Sprintf("%s on %s", strings.ToLower(string(in.Phase)), in.Node)
		if count[word]++; count[word] == 1 {
			order = append(order, word)
		}
	}
	for _, word := range order {
		if n := count[word]; n > 1 {
			word = fmt.Sprintf("%d %s", n, word)
		}
		words = append(words, word)
	}
	if n := len(f.Endpoints); n > 0 {
		words = append(words, fmt.Sprintf("ready at %d %s", n, plural(n, "endpoint")))
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
			if row[i] = nodeapi.Printable(cell); cell == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}
