package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/platform"
)

func applyCommand(c *cli) *cobra.Command {
	var file manifestFile
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Deploy functions from Knative Service manifests", Args: byFlag,
		Long: `Deploy the functions of a file of Knative Service manifests (serving.knative.dev/v1),
all of them or none. Fields that the embedded platform does not support are rejected by
name; docs/reference/knative-service.md lists the supported ones.`,
		Example: "  headstart apply -f service.yaml\n  cat service.yaml | headstart apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, err := file.open(cmd)
			if err != nil {
				return err
			}
			defer in.Close()
			applied, err := c.client().Apply(cmd.Context(), in)
			if err != nil {
				return err
			}
			for _, a := range applied {
				for _, w := range a.Warnings {
					fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: %s\n", a.Function, w)
				}
			}
			return c.printApplied(cmd.OutOrStdout(), applied)
		},
	}
	file.flag(cmd)
	c.outputFlag(cmd)
	return cmd
}

func deleteCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "delete NAMESPACE/NAME...", Short: "Remove functions and their instances", Args: cobra.MinimumNArgs(1),
		Long: `Remove functions. They take no new requests; their instances complete theirs, and are
stopped. Without a namespace, a name is in the namespace default.`,
		Example: "  headstart delete fire\n  headstart delete city/fire city/flood",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			deleted := []admin.Applied{}
			for _, name := range args {
				name = c.functionName(name)
				if err = c.client().Delete(cmd.Context(), name); err != nil {
					break
				}
				deleted = append(deleted, admin.Applied{Function: name, Change: platform.Deleted})
			}
			// What was deleted before an error stays deleted.
			return errors.Join(c.printApplied(cmd.OutOrStdout(), deleted), err)
		},
	}
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) printApplied(out io.Writer, applied []admin.Applied) error {
	if c.output == jsonOutput {
		return printJSON(out, applied)
	}
	for _, a := range applied {
		if _, err := fmt.Fprintln(out, a.Function, a.Change); err != nil {
			return err
		}
	}
	return nil
}
