package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
)

func imageCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Images on the embedded platform's nodes"}
	importCmd := &cobra.Command{
		Use: "import FILE", Short: "Import an image from an OCI or Docker archive on every node",
		Args: cobra.ExactArgs(1),
		Long: `Import an image from an archive, as "docker save" and most builders write them, on
every node of the embedded platform. Images from a registry need no import.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := c.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if len(s.Nodes) == 0 {
				return errors.New("no node is connected that could take the image; `headstart status` shows when one is")
			}
			var all []imported
			for _, n := range s.Nodes {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				names, err := containerd.Import(cmd.Context(), filepath.Join(c.runDir, n.Name, "containerd.sock"), f)
				_ = f.Close() // it was only read
				if err != nil {
					return fmt.Errorf("node %s: %w", n.Name, err)
				}
				all = append(all, imported{Node: n.Name, Images: names})
				if c.output == text {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", n.Name, strings.Join(names, ", "))
				}
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), all)
			}
			return nil
		},
	}
	c.outputFlag(importCmd)
	cmd.AddCommand(importCmd)
	return cmd
}

// imported are the images of an archive that a node has now.
type imported struct {
	Node   string   `json:"node"`
	Images []string `json:"images"`
}
