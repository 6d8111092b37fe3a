package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// problemsMost is how many problems of one check are printed: a screenful.
const problemsMost = 20

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
			p := &checkPrinter{out: cmd.OutOrStdout(), color: waterfallOptions(cmd.OutOrStdout()).Color}
			each := p.print
			if c.output == jsonOutput {
				each = nil
			}
			results := check.Run(cmd.Context(), checks, e, each)
			if c.output == jsonOutput {
				p.err = printJSON(cmd.OutOrStdout(), results)
			}
			if err := errors.Join(p.err, cmd.Context().Err()); err != nil {
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

// checkPrinter writes results as they come.
type checkPrinter struct {
	out   io.Writer
	color bool
	err   error
}

// colors of the results, as ECMA-48 has them.
var colors = map[check.Status]string{check.Pass: "32", check.Warn: "33", check.Fail: "31", check.Skip: "2"}

func (p *checkPrinter) print(r check.Result) {
	word := fmt.Sprintf("%-4s", r.Status)
	if p.color {
		word = "\x1b[" + colors[r.Status] + "m" + word + "\x1b[0m"
	}
	const titleWidth = 24 // of the longest
	lines := []string{strings.TrimRight(fmt.Sprintf("%s  %-*s %s", word, titleWidth, r.Name, nodeapi.Printable(r.Message)), " ")}
	for i, problem := range r.Problems {
		if i == problemsMost {
			lines = append(lines, fmt.Sprintf("      and %d more", len(r.Problems)-i))
			break
		}
		text := nodeapi.Printable(problem.Message)
		if problem.Object != "" {
			text = nodeapi.Printable(problem.Object) + ": " + text
		}
		lines = append(lines, "      "+text)
	}
	if r.Hint != "" {
		lines = append(lines, "      "+r.Hint)
	}
	if r.Docs != "" {
		lines = append(lines, "      See "+r.Docs)
	}
	_, err := fmt.Fprintln(p.out, strings.Join(lines, "\n"))
	p.err = errors.Join(p.err, err)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// plural is the word for n things.
func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
