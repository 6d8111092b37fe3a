package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/headstart-mesh/headstart/shim/install"
	"github.com/headstart-mesh/headstart/shim/install/containerd"
	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/node"
	"github.com/headstart-mesh/headstart/shim/install/tree"
	"github.com/headstart-mesh/headstart/shim/ktls"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// dataEnv is where our images have their files, dataDefault the path that they have there.
	dataEnv, dataDefault = "KO_DATA_PATH", "/var/run/ko"
	shimName             = "containerd-shim-headstart-v2"
	nodeEnv              = "NODE_NAME"
	restartAuto          = "auto"
	restartNever         = "never"
	defaultTimeout       = 3 * time.Minute
	// terminationLog is where the kubelet reads a container's last words (terminationMessagePath).
	terminationLog = "/dev/termination-log"
)

// options are what the flags say.
type options struct {
	hostRoot, layout, restart, nodeName string
	restartTimeout                      time.Duration
	output                              string
	lastWords                           string // file that the kubelet reads them from
	settings                            install.Settings
}

// command is the command line.
func command() *cobra.Command {
	o := options{lastWords: terminationLog}
	root := &cobra.Command{
		Use:   "headstart-installer",
		Short: "Installs Headstart's shim and containerd runtime on a node, and removes them",
		Long: `headstart-installer works on one node, whose file system is below --host-root. It needs
root there, and the node's process ids (hostPID: true).`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       nodeapi.Version,
	}
	f := root.PersistentFlags()
	f.StringVar(&o.hostRoot, "host-root", "/host", "directory with the node's file system")
	f.StringVar(&o.nodeName, "node-name", os.Getenv(nodeEnv), "name of this node in Kubernetes (default $"+nodeEnv+"); empty: no label, no events")
	f.StringVar(&o.settings.Socket, "socket", "", "containerd's socket on the node (default by layout)")
	f.DurationVar(&o.restartTimeout, "restart-timeout", defaultTimeout, "how long containerd may take to come back")
	f.StringVar(
		&o.restart, "restart", restartAuto,
		"auto: restart containerd when its configuration has changed; never: leave the restart to you",
	)
	root.AddCommand(installCommand(&o), uninstallCommand(&o), statusCommand(&o), waitCommand())
	return root
}

func installCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the shim and the runtime on the node, verify them, label the node",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd, func(i *install.Installer, ctx context.Context) error {
				// The daemon cannot load the module: it has no CAP_NET_ADMIN.
				if err := ktls.Probe(); err != nil {
					i.Log.Info("the daemon does the TLS of connections on this node, and these end with it", "reason", err)
				}
				return o.withoutRuntime(i.Log, i.Install(ctx))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.settings.Shim, "shim", filepath.Join(dataPath(), shimName), "the shim to install, in this container")
	f.StringVar(
		&o.layout, "layout", "",
		"how the node keeps containerd's configuration: "+strings.Join(layout.Kinds(), ", ")+" (default: detected)",
	)
	f.StringVar(&o.settings.Config, "config", "", "containerd's configuration on the node (default by layout)")
	f.BoolVar(&o.settings.Verify, "verify", true, "run a sandbox before the node is labelled")
	return cmd
}

// withoutRuntime has the pod of a node that cannot have the runtime be as ready as others: the node's daemon and gateways work.
// The container's termination message says why, for `headstart check`.
func (o *options) withoutRuntime(log *slog.Logger, err error) error {
	unsuited, is := err.(*layout.Unsuited) //nolint:errorlint // joined with another error it is not all that is wrong
	if !is || o.nodeName == "" {
		return err
	}
	log.Warn("the node does without the runtime; its functions get inputs as bodies", "reason", unsuited.Why)
	return os.WriteFile(o.lastWords, []byte(unsuited.Error()+"\n"), 0o600)
}

func uninstallCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove all of it from the node, and restore the previous state",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd, (*install.Installer).Uninstall)
		},
	}
	cmd.Flags().BoolVar(&o.settings.Force, "force", false, "also while pods use the runtime; they cannot be cleaned up then")
	return cmd
}

func statusCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what is on the node; exits with 1 unless the installation is complete",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "text" && o.output != "json" {
				return fmt.Errorf("--output %q: it is text or json", o.output)
			}
			o.nodeName = "" // nothing is asked of Kubernetes
			return o.run(cmd, func(i *install.Installer, ctx context.Context) error {
				s, err := i.Status(ctx)
				if err != nil {
					return err
				}
				if err := show(cmd.OutOrStdout(), s, o.output); err != nil {
					return err
				}
				if !s.Sound() {
					return errors.New("the node is not as an installation leaves it; run the installer again (delete the node's headstart-installer pod)")
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

// waitCommand is what the installer's pod does once the node is done: DaemonSets have no pods that end.
func waitCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "wait",
		Short: "Do nothing until SIGTERM",
		Args:  cobra.NoArgs,
		Run:   func(cmd *cobra.Command, _ []string) { <-cmd.Context().Done() },
	}
}

// run makes the installer that the flags describe, and has it do something.
func (o *options) run(cmd *cobra.Command, do func(*install.Installer, context.Context) error) (err error) {
	if o.restart != restartAuto && o.restart != restartNever {
		return fmt.Errorf("--restart %q: it is %s or %s", o.restart, restartAuto, restartNever)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	kubernetes, err := o.kubernetes(log)
	if err != nil {
		return err
	}
	files, err := tree.Open(o.hostRoot)
	if err != nil {
		return fmt.Errorf("%w; mount the node's / there, or say where it is with --host-root", err)
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	o.settings.Layout, o.settings.Restart, o.settings.Version = layout.Kind(o.layout), o.restart == restartAuto, nodeapi.Version
	return do(&install.Installer{
		Settings: o.settings,
		Tree:     files,
		Connect: func(socket string) install.Runtime {
			c := containerd.New(socket, o.restartTimeout)
			c.Files = files
			return c
		},
		Node: kubernetes,
		Log:  log,
	}, cmd.Context())
}

// kubernetes is the node in the cluster that this container runs in.
func (o *options) kubernetes(log *slog.Logger) (install.Node, error) {
	if o.nodeName == "" {
		return node.None{}, nil
	}
	client, err := connect()
	if err != nil {
		return nil, err
	}
	return &node.Node{Name: o.nodeName, Client: client, Log: log}, nil
}

// connect reaches the cluster that this container runs in.
func connect() (corev1client.CoreV1Interface, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("reaching Kubernetes: %w; without a cluster, use --node-name ''", err)
	}
	client, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reaching Kubernetes: %w", err)
	}
	return client, nil
}

// show prints a status.
func show(w io.Writer, s *install.Status, format string) error {
	if format == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	if !s.Installed {
		fmt.Fprintln(w, "nothing is installed on this node")
		return nil
	}
	fmt.Fprintf(w, "Headstart %s, layout %s, containerd at %s\n", s.Version, s.Layout, s.Socket)
	for _, f := range s.Files {
		fmt.Fprintf(w, "  %-9s %s\n", f.State, f.Path)
	}
	if !s.Containerd {
		fmt.Fprintln(w, "containerd does not answer")
	}
	if s.RestartPending {
		fmt.Fprintln(w, "containerd has not read its configuration yet: restart it")
	}
	return nil
}

func dataPath() string {
	if p := os.Getenv(dataEnv); p != "" {
		return p
	}
	return dataDefault
}
