package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// versionTimeout bounds what `headstart version` waits for others to say theirs.
const versionTimeout = 5 * time.Second

// versions are those of this program, and of the platform that it reaches.
type versions struct {
	Version      string            `json:"version"`
	ControlPlane string            `json:"controlPlane,omitempty"`
	Nodes        map[string]string `json:"nodes,omitempty"`
}

func versionCommand(c *cli) *cobra.Command {
	var client bool
	cmd := &cobra.Command{Use: "version", Short: "Print the version, and the platform's", Args: cobra.NoArgs,
		Long: `Print the version of this program on the first line, and those of control plane and nodes
below, of the platform on this machine or of the cluster, if there is one.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Version: nodeapi.Version}
			var err error
			if !client {
				err = c.askVersions(cmd, &v)
				if err != nil && named(cmd) {
					return err
				}
			}
			if err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", err)
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), v)
			}
			return printVersions(cmd, v)
		}}
	cmd.Flags().BoolVar(&client, "client", false, "print only the client version")
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	return cmd
}

// askVersions adds the platform's versions. Nobody to ask is no error.
func (c *cli) askVersions(cmd *cobra.Command, v *versions) error {
	if !named(cmd) && !c.local() && c.cluster.unknown() {
		return nil
	}
	platform, err := c.target(cmd)
	if err != nil {
		return err
	}
	defer platform.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), versionTimeout)
	defer cancel()
	s, err := platform.Status(ctx)
	if err != nil {
		return err
	}
	v.add(s)
	return nil
}

func (v *versions) add(s admin.Status) {
	v.ControlPlane, v.Nodes = s.Version, map[string]string{}
	for _, n := range s.Nodes {
		v.Nodes[n.Name] = n.Version
	}
}

func printVersions(cmd *cobra.Command, v versions) error {
	out := cmd.OutOrStdout()
	if _, err := fmt.Fprintln(out, v.Version); err != nil || v.ControlPlane == "" {
		return err
	}
	rows := [][]string{{"control plane", v.ControlPlane}}
	count := map[string]int{}
	for _, version := range v.Nodes {
		count[version]++
	}
	for _, version := range sortedKeys(count) {
		rows = append(rows, []string{fmt.Sprintf("%d %s", count[version], plural(count[version], "node")), version})
	}
	return printTable(out, "", rows, "PART", "VERSION")
}
