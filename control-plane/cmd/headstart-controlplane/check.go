package main

import (
	"context"
	"fmt"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// operators are the checks that need an operator's rights: to reach the control plane's own door, and to try what a policy refuses.
var operators = []string{"admin", "routes"}

// checkCommand is what `helm test` runs.
func checkCommand(c *config) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Diagnose the installation, as `headstart check` does",
		Long: `check reports what keeps Headstart, gateways or functions from working, with fixes. It changes
nothing. What needs an operator's rights it leaves to the operator: the control plane's own answers,
Secrets, and to try routes. The exit status is 1 if a check fails, or if it may not look.

The chart runs it for "helm test".`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			server, err := c.apiServer()
			if err != nil {
				return err
			}
			reader, err := objects.Connect(server)
			if err != nil {
				return err
			}
			p := &check.Printer{Out: cmd.OutOrStdout()}
			results := check.Run(ctx, check.After(), check.Env{Objects: reader, Namespace: c.namespace, MeshNamespace: c.istioRoot, Version: nodeapi.Version,
				Status: func(context.Context) (admin.Status, error) {
					return admin.Status{}, apierrors.NewForbidden(schema.GroupResource{Resource: "pods/portforward"}, "", nil)
				}}, p.Print)
			if p.Err != nil {
				return p.Err
			}
			if n := check.Failed(results); n > 0 {
				return fmt.Errorf("%d of %d checks failed", n, len(results))
			}
			for _, r := range results {
				if r.Unseen && !slices.Contains(operators, r.ID) {
					return fmt.Errorf("check %s: %s; the chart has the role headstart-test for that", r.ID, r.Message)
				}
			}
			return ctx.Err()
		},
	}
}
