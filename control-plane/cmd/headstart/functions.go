package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
)

func applyCommand(c *cli) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Deploy functions from Knative Service manifests", Args: cobra.NoArgs,
		Long: `Deploy the functions of a file of Knative Service manifests (serving.knative.dev/v1),
all of them or none. What the embedded platform does not support is refused by name;
docs/reference/knative-service.md lists what it does.`,
		Example: "  headstart apply -f service.yaml\n  cat service.yaml | headstart apply -f -",
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := cmd.InOrStdin()
			if file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			applied, err := c.client().Apply(cmd.Context(), in)
			if err != nil {
				return err
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), applied)
			}
			for _, a := range applied {
				fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", a.Function, a.Change)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "manifest, - for standard input")
	_ = cmd.MarkFlagRequired("filename") // it is defined above
	c.outputFlag(cmd)
	return cmd
}

func deleteCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAMESPACE/NAME", Short: "Remove a function and its instances", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if !strings.Contains(name, "/") {
				name = "default/" + name
			}
			if err := c.client().Delete(cmd.Context(), name); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), name, "deleted")
			return err
		},
	}
}

func statusCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show nodes, functions, instances and events", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := c.client().Status(cmd.Context())
			if err != nil {
				return err
			}
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), s)
			}
			return printStatus(cmd.OutOrStdout(), s, time.Now())
		},
	}
	c.outputFlag(cmd)
	return cmd
}

func printStatus(out io.Writer, s admin.Status, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tGATEWAY\tINSTANCES\tVERSION")
	for _, n := range s.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", n.Name, n.Gateway, n.Instances, n.Version)
	}
	if len(s.Functions) == 0 {
		fmt.Fprintln(w, "\nNo functions; deploy one by `headstart apply -f`.")
		return w.Flush()
	}
	fmt.Fprintln(w, "\nFUNCTION\tHOST\tSTATE\tINPUT")
	for _, f := range s.Functions {
		state := "cold"
		for _, in := range f.Instances {
			state = fmt.Sprintf("%s on %s", strings.ToLower(string(in.Phase)), in.Node)
		}
		input := f.Input
		if input == "" {
			input = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Name, f.Hosts[0], state, input)
	}
	events := false
	for _, f := range s.Functions {
		for _, e := range f.Events {
			if !events {
				fmt.Fprintln(w, "\nFUNCTION\tAGO\tTIMES\tEVENT")
				events = true
			}
			field := ""
			if e.Field != "" {
				field = " [" + e.Field + "]"
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s: %s%s\n", f.Name, now.Sub(e.Last).Round(time.Second), e.Count, e.Reason, e.Message, field)
		}
	}
	return w.Flush()
}
