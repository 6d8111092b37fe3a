// headstart is the command line of Headstart.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// output is how a command prints data.
type output string

const (
	text       output = ""
	jsonOutput output = "json"
)

func (o *output) String() string { return string(*o) }
func (o *output) Type() string   { return "format" }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	if s != string(jsonOutput) {
		return errors.New("the formats are: json")
	}
	*o = output(s)
	return nil
}

// cli is what all commands share.
type cli struct {
	runDir string
	output output
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "headstart:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var c cli
	root := &cobra.Command{
		Use:   "headstart",
		Short: "Everything a cold request waits for, in place while its sandbox starts",
		Long: `headstart runs serverless functions whose cold requests find their input waiting.

  headstart up                     start the embedded platform on this machine (root)
  headstart image import fn.tar    bring a function's image, if no registry has it
  headstart apply -f service.yaml  deploy functions (Knative Service manifests)
  headstart status                 nodes, functions, instances, and what went wrong
  headstart trace <request>        one request as a waterfall

To see all commands with Tab: source <(headstart completion bash)`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       nodeapi.Version,
	}
	root.PersistentFlags().StringVar(&c.runDir, "run-dir", "/run/headstart", "where the platform's sockets are")
	root.AddCommand(upCommand(&c), applyCommand(&c), deleteCommand(&c), statusCommand(&c), traceCommand(&c), imageCommand(&c), versionCommand(&c))
	return root
}

func (c *cli) client() *admin.Client { return admin.NewClient(filepath.Join(c.runDir, "admin.sock")) }

func (c *cli) outputFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&c.output, "output", "o", "json: print data for scripts")
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func versionCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.output == jsonOutput {
				return printJSON(cmd.OutOrStdout(), map[string]string{"version": nodeapi.Version})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), nodeapi.Version)
			return err
		}}
	c.outputFlag(cmd)
	return cmd
}
