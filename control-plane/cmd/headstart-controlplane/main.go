// headstart-controlplane decides: it knows functions, nodes and instances, tells the
// gateways where requests go (xDS) and the nodes what is coming.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// config is what the flags say.
type config struct {
	stateDir, runDir string
	listen, metrics  string
	cert, key, ca    string
	stores           string
	destinations     string
	largestInput     int64
	otlpForward      string
	logLevel         string

	platform                                string
	identityListen, otlpListen, adminListen string
	name, namespace, kubeconfig             string
	istioRoot, istioRevision                string
	functionNamespaces                      []string
	functionsPerNamespace                   int
	labelNodes                              bool
}

// The platforms.
const (
	platformLocal      = "local"
	platformKubernetes = "kubernetes"
)

// gcPercent is in place of Go's 100: the control plane has little to do, and what it keeps
// is what it costs. GOGC of the environment goes before it.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var c config
	cmd := &cobra.Command{
		Use:   "headstart-controlplane",
		Short: "The control plane of Headstart",
		Long: `headstart-controlplane serves, on --listen (mutual TLS):
  the nodes' streams  registration, activations, instances
  xDS (delta)         endpoints and expectations, for the relays of the nodes' Envoys
and, in --run-dir, unix sockets of mode 0600:
  admin.sock  the CLI's API socket: apply, status, traces
  otlp.sock   the collector of traces (OTLP over gRPC) that "headstart trace" reads

With --platform kubernetes it follows a cluster instead, is its own certificate authority,
writes the mesh's EnvoyFilters, and has TCP ports in place of the sockets.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       nodeapi.Version,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			log, err := c.logger()
			if err == nil {
				klog.SetSlogLogger(log) // client-go's words, in the form of ours
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			switch c.platform {
			case platformLocal:
				return runLocal(ctx, c)
			case platformKubernetes:
				return runKubernetes(ctx, c)
			}
			return fmt.Errorf("--platform %q: use %s or %s", c.platform, platformLocal, platformKubernetes)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.stateDir, "state-dir", "/var/lib/headstart", "directory where deployed functions survive a restart")
	f.StringVar(&c.runDir, "run-dir", "/run/headstart", "directory for admin.sock and otlp.sock")
	f.StringVar(&c.listen, "listen", "", "ip:port for nodes")
	f.StringVar(&c.metrics, "metrics-listen", "127.0.0.1:9465", "ip:port of /metrics, empty for none")
	f.StringVar(&c.cert, "cert", "", "certificate (PEM)")
	f.StringVar(&c.key, "key", "", "private key of --cert (PEM)")
	f.StringVar(&c.ca, "ca", "", "certificate authority of the nodes (PEM)")
	f.StringVar(&c.stores, "stores", "", "the operator's list of stores that inputs may come from (YAML); empty: none")
	f.StringVar(&c.destinations, "destinations", "",
		"the operator's list of destinations that functions may be connected to (YAML); empty: none")
	f.Int64Var(
		&c.largestInput, "largest-input", 0,
		"bytes that an input can have in a node's buffer: deploying a function with a larger limit causes a warning; 0: not known",
	)
	f.StringVar(&c.otlpForward, "otlp-forward", "", "gRPC target of your own collector, which gets all traces too; empty for none")
	cmd.PersistentFlags().StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.platform, "platform", platformLocal, "what runs the functions: local (one machine) or kubernetes")
	f.StringVar(&c.identityListen, "identity-listen", ":7444", "ip:port where nodes get their certificates (kubernetes)")
	f.StringVar(&c.otlpListen, "otlp-listen", ":4317", "ip:port of the collector of traces (kubernetes)")
	f.StringVar(
		&c.adminListen, "admin-listen", "127.0.0.1:9466",
		"ip:port of the CLI's API; keep it on loopback, the CLI reaches it by port forwarding (kubernetes)",
	)
	f.StringVar(
		&c.name, "name", "",
		"name that distinguishes this control plane from the others; empty: the host's, which is the pod's (kubernetes)",
	)
	cmd.PersistentFlags().StringVar(&c.namespace, "namespace", "headstart-system", "the control plane's own namespace (kubernetes)")
	cmd.PersistentFlags().StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster to follow; empty: the one it runs in (kubernetes)")
	f.IntVar(
		&c.functionsPerNamespace, "functions-per-namespace", catalog.DefaultFunctionsMost,
		"functions that a namespace may have; the youngest of more are refused (kubernetes)",
	)
	cmd.PersistentFlags().StringVar(&c.istioRoot, "istio-root-namespace", "istio-system", "Istio's root namespace (kubernetes)")
	f.StringVar(&c.istioRevision, "istio-revision", "", "mesh revision that sees the EnvoyFilters; empty: all (kubernetes)")
	f.StringSliceVar(&c.functionNamespaces, "function-namespaces", nil, "namespaces that may have functions, with commas between; empty: all (kubernetes)")
	f.BoolVar(&c.labelNodes, "label-nodes", false, "label nodes with the volumes that they keep, for the scheduler (kubernetes)")
	_ = cmd.MarkFlagRequired("listen") // fails only for a flag that is not defined above
	cmd.AddCommand(uninstallCommand(&c), checkCommand(&c))
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "headstart-controlplane:", err)
		os.Exit(1)
	}
}

// check says which flag the platform still needs.
func (c config) check() error {
	if c.platform != platformLocal {
		if c.functionsPerNamespace < 1 {
			return fmt.Errorf("--functions-per-namespace: %d, must be at least 1", c.functionsPerNamespace)
		}
		return nil
	}
	for flag, value := range map[string]string{"cert": c.cert, "key": c.key, "ca": c.ca} {
		if value == "" {
			return fmt.Errorf("--%s is required on the local platform", flag)
		}
	}
	return nil
}

func (c config) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", c.logLevel)
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})), nil
}

func (c config) socket(name string) string { return filepath.Join(c.runDir, name) }
