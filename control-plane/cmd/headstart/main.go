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
	"slices"
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
	here := `
On this machine alone, as root:

  headstart up                     start the embedded platform
  headstart image import fn.tar    import a function's image, if no registry has it
  headstart apply -f service.yaml  deploy functions (Knative Service manifests)
  headstart run -f job.yaml        run a job once (a Job manifest)

On either:
`
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
	root.AddCommand(upCommand(c), applyCommand(c), deleteCommand(c), runCommand(c), statusCommand(c), logsCommand(c), weightsCommand(c), poolsCommand(c), cacheCommand(c), warmCommand(c), adviseCommand(c), workflowCommand(c), traceCommand(c), checkCommand(c), imageCommand(c), versionCommand(c))
	if c.plugin {
		hideLocal(root)
	}
	return root
}

// localCommands work on the platform of this machine only.
var localCommands = []string{"up", "apply", "delete", "run", "logs", "image"}

// hideLocal takes from the help what does not work on a cluster.
func hideLocal(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		cmd.Hidden = slices.Contains(localCommands, cmd.Name())
	}
	_ = root.PersistentFlags().MarkHidden("run-dir") // it is defined
}

func (c *cli) client() *admin.Client { return admin.NewClient(filepath.Join(c.runDir, "admin.sock")) }

func (c *cli) outputFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(&c.output, "output", "o", "json: print data for scripts")
}
