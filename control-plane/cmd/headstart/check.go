package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func checkCommand(c *cli) *cobra.Command {
	var pre bool
	var mesh string
	cmd := &cobra.Command{
		Use: "check", Short: "Diagnose a cluster and suggest fixes", Args: cobra.NoArgs,
		Long: `Diagnose a Kubernetes cluster: report what keeps Headstart, gateways or functions from
working, with fixes. It changes nothing. Objects that you may not read are skipped.

The exit status is 1 if a check fails. docs/reference/checks.md explains each.`,
		Example: "  headstart check --pre --context production\n  headstart check -n video\n  headstart check -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := c.cluster.env(mesh)
			if err != nil {
				return err
			}
			checks := check.After()
			if pre {
				checks = check.Before()
			}
			p := &check.Printer{Out: cmd.OutOrStdout(), Color: waterfallOptions(cmd.OutOrStdout()).Color}
			each := p.Print
			if c.output == jsonOutput {
				each = nil
			}
			results := check.Run(cmd.Context(), checks, e, each)
			if c.output == jsonOutput {
				p.Err = printJSON(cmd.OutOrStdout(), results)
			}
			if err := errors.Join(p.Err, cmd.Context().Err()); err != nil {
				return err
			}
			if n := check.Failed(results); n > 0 {
				return fmt.Errorf("%d of %d checks failed", n, len(results))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&pre, "pre", false, "check whether Headstart can be installed")
	cmd.Flags().StringVar(&mesh, "istio-namespace", "istio-system", "Istio's root namespace")
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	return cmd
}

// env is what the checks look at.
func (k *cluster) env(mesh string) (check.Env, error) {
	config, err := k.config()
	if err != nil {
		return check.Env{}, err
	}
	reader, err := objects.Connect(config)
	if err != nil {
		return check.Env{}, fmt.Errorf("the kubeconfig: %w", err)
	}
	return check.Env{
		Objects: reader, Namespace: k.system, MeshNamespace: mesh, Only: k.namespace, Version: nodeapi.Version,
		Status: func(ctx context.Context) (admin.Status, error) {
			client, err := k.client()
			if err != nil {
				return admin.Status{}, err
			}
			defer client.Close()
			return client.Status(ctx)
		},
	}, nil
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// plural is the word for n things.
func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
