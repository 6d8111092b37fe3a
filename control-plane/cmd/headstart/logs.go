package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func logsCommand(c *cli) *cobra.Command {
	var o admin.LogOptions
	cmd := &cobra.Command{
		Use: "logs NAMESPACE/NAME", Short: "Show what a function or job has written to its output", Args: cobra.ExactArgs(1),
		Long: `Show what a function or a job has written to standard output and error, on all nodes of
the platform on this machine. With several nodes, each line begins with its node.
Without a namespace, a name is in the namespace default.

On Kubernetes kubectl has the logs: the command prints how to call it.`,
		Example: "  headstart logs fire\n  headstart logs -f --tail 20 city/fire",
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.target(cmd)
			if err != nil {
				return err
			}
			defer client.Close()
			o.Function = c.functionName(args[0])
			s, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			if s.Platform == admin.Kubernetes {
				return useKubectl(s, o)
			}
			return c.printLogs(cmd, client, o, len(s.Nodes) > 1)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "continue with new lines, until Ctrl-C")
	f.IntVar(&o.Tail, "tail", -1, "number of lines of each node to begin with; -1 for all")
	c.cluster.flags(cmd)
	c.outputFlag(cmd)
	return cmd
}

// printLogs prints lines as they come.
func (c *cli) printLogs(cmd *cobra.Command, client *admin.Client, o admin.LogOptions, prefix bool) error {
	out, terminal := cmd.OutOrStdout(), isTerminal(cmd.OutOrStdout())
	some := false
	err := client.Logs(cmd.Context(), o, func(l admin.LogLine) error {
		some = true
		if c.output == jsonOutput {
			return printJSONLine(out, l)
		}
		if terminal { // which would obey what a function says; a file takes it as it is
			l.Line = nodeapi.Printable(l.Line)
		}
		if prefix {
			l.Line = "[" + nodeapi.Printable(l.Node) + "] " + l.Line
		}
		_, err := fmt.Fprintln(out, l.Line)
		return err
	})
	if o.Follow && errors.Is(err, context.Canceled) {
		return nil // Ctrl-C is how it ends
	}
	if err == nil && !some && o.Tail != 0 {
		_, err = fmt.Fprintf(cmd.ErrOrStderr(), "%s has written nothing to its output.\n", o.Function)
	}
	return err
}

// isTerminal says whether somebody looks at out.
func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// useKubectl says how to have the log of a cluster's function.
func useKubectl(s admin.Status, o admin.LogOptions) error {
	namespace, name, _ := strings.Cut(o.Function, "/")
	i := slices.IndexFunc(s.Functions, func(f admin.Function) bool { return f.Name == o.Function })
	if i < 0 {
		return fmt.Errorf("no such function: %s; `headstart status` lists them", o.Function)
	}
	of := "-l serving.knative.dev/service=" + name + " -c user-container" // whose Deployments are one per revision
	if kind, workload, ok := strings.Cut(s.Functions[i].Workload, " "); ok {
		of = strings.ToLower(kind) + "/" + workload
	}
	command := "kubectl logs -n " + namespace + " " + of
	if o.Follow {
		command += " -f"
	}
	if o.Tail >= 0 {
		command += " --tail " + strconv.Itoa(o.Tail)
	}
	return fmt.Errorf("on Kubernetes kubectl has the logs: %s; of a container that has ended, add --previous", command)
}
