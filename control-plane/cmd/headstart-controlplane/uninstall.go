package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/uninstall"
)

// uninstallTimeout is for a node that takes its time to give back its containerd.
const uninstallTimeout = 10 * time.Minute

// uninstallCommand is what the chart's hook runs before the chart is deleted.
func uninstallCommand(c *config) *cobra.Command {
	var manifest string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Headstart from the cluster before its chart is deleted",
		Long: `uninstall removes what the control plane and the installer have written, in an order that
keeps requests working: functions without an instance get one, the gateways get Istio's own
endpoints, and then the daemons end. It can be interrupted and repeated: completed steps are
skipped.

The chart runs it as its pre-delete hook.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return runUninstall(ctx, *c, manifest)
		},
	}
	cmd.Flags().StringVar(&manifest, "node-manifest", "", "file with the DaemonSet that cleans the nodes (YAML)")
	cmd.Flags().DurationVar(&timeout, "timeout", uninstallTimeout, "time limit for all steps together")
	_ = cmd.MarkFlagRequired("node-manifest") // fails only for a flag that is not defined above
	return cmd
}

func runUninstall(ctx context.Context, c config, manifest string) error {
	log, err := c.logger()
	if err != nil {
		return err
	}
	node, err := os.ReadFile(manifest)
	if err != nil {
		return fmt.Errorf("--node-manifest: %w", err)
	}
	clients, objects, err := c.connect()
	if err != nil {
		return err
	}
	mesh := istio.NewWriter(objects, istio.Config{RootNamespace: c.istioRoot}, log)
	u := &uninstall.Uninstaller{Client: clients.Kubernetes, Mesh: mesh, Namespace: c.namespace, Node: node, Log: log}
	return u.Run(ctx)
}
