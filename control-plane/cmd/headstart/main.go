// headstart is the command line of Headstart, and under the name kubectl-headstart a
// plugin of kubectl.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// defaultRunDir is where `headstart up` has its sockets.
const defaultRunDir = "/run/headstart"

// pluginName is what kubectl looks for when it is told `kubectl headstart`.
const pluginName = "kubectl-headstart"

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
	runDir  string
	output  output
	cluster cluster
	// plugin: kubectl has called, so a cluster is meant.
	plugin bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// What client-go has to say is in the errors that it returns, but for warnings.
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err := command(os.Args[0]).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "headstart:", err)
		os.Exit(1)
	}
}

// command is the whole command line of a program called self.
func command(self string) *cobra.Command {
	name := "headstart"
	c := &cli{plugin: strings.TrimSuffix(filepath.Base(self), ".exe") == pluginName}
	if c.plugin {
		name = "kubectl headstart"
	}
	here := platformHere
	if c.plugin {
		here = ""
	}
	root := &cobra.Command{
		Use:         "headstart",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: name},
		Short:       "Everything a cold request waits for, in place while its sandbox starts",
		Long: fmt.Sprintf(`headstart runs serverless functions, and fetches the input of a cold request while the
function starts.

On a Kubernetes cluster with Istio:

  %[1]s check --pre          whether Headstart can be installed
  %[1]s check                what is wrong, and how to fix it
%[2]s
  %[1]s status               nodes, functions, instances, and recent errors
  %[1]s trace <request>      one request as a waterfall

To see all commands with Tab: source <(headstart completion bash)`, name, here),
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       nodeapi.Version,
	}
	root.PersistentFlags().StringVar(&c.runDir, "run-dir", defaultRunDir, "where the sockets of a platform on this machine are")
	root.AddCommand(statusCommand(c), weightsCommand(c), poolsCommand(c), cacheCommand(c), warmCommand(c), adviseCommand(c), reportCommand(c), workflowCommand(c),
		traceCommand(c), checkCommand(c), versionCommand(c))
	local := append(localCommands(c), logsCommand(c)) // which on a cluster says what kubectl does instead
	root.AddCommand(local...)
	if c.plugin { // the help has what works on a cluster
		for _, cmd := range local {
			cmd.Hidden = true
		}
		_ = root.PersistentFlags().MarkHidden("run-dir") // it is defined
	}
	return root
}

func (c *cli) client() *admin.Client { return admin.NewClient(filepath.Join(c.runDir, "admin.sock")) }

func (c *cli) outputFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&c.output, "output", "o", "json: print data for scripts")
}
