package main

import (
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
)

// nodePool is a pool with its node, as `-o json` has it.
type nodePool struct {
	Node string `json:"node"`
	admin.Pool
}

func poolsCommand(c *cli) *cobra.Command {
	var node, destination string
	cmd := &cobra.Command{
		Use: "pools", Short: "Show the connections that wait for functions", Args: cobra.NoArgs,
		Long: `Show the connections with the operator's destinations that wait on the nodes for
functions to start: how many there are, how many are wanted, and how many the
node may hold. A function has as many waiting as start while a new one is made.
Those that are made in sandboxes (origin: sandbox) wait for nobody.

It asks the platform on this machine if one runs, else the control plane in the cluster.`,
		Example: "  headstart pools\n  headstart pools --destination orders -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.target(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			pools := []nodePool{}
			for _, n := range s.Nodes {
				for _, p := range n.Pools {
					if (node == "" || n.Name == node) && (destination == "" || p.Destination == destination) {
						pools = append(pools, nodePool{n.Name, p})
					}
				}
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), pools)
			}
			return printPools(cmd.OutOrStdout(), pools)
		},
	}
	c.cluster.flags(cmd)
	cmd.Flags().StringVar(&node, "node", "", "show this node only")
	cmd.Flags().StringVar(&destination, "destination", "", "show this destination only")
	c.outputFlag(cmd)
	return cmd
}

func printPools(out io.Writer, pools []nodePool) error {
	var rows [][]string
	for _, p := range pools {
		sum := []string{p.Node, p.Destination, "", strconv.Itoa(p.Held), strconv.Itoa(p.Wanted), strconv.Itoa(p.Allowed), "", ""}
		rows = append(rows, sum)
		for _, f := range p.Functions {
			rows = append(rows, slices.Concat([]string{"", "", f.Function, strconv.Itoa(f.Held), strconv.Itoa(f.Wanted), ""},
				[]string{span(f.SetupSeconds), span(f.OldestSeconds)}))
		}
	}
	return printTable(out, "No connections wait on any node.", rows, "NODE", "DESTINATION", "FUNCTION", "HELD", "WANTED", "ALLOWED", "SETUP", "OLDEST")
}
