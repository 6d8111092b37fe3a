//go:build trykn

package knative_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/headstart-mesh/headstart/e2e/cluster/knative"
)

func TestTry(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	kubectl := func(ctx context.Context, in io.Reader, args ...string) error {
		c := exec.CommandContext(ctx, "kubectl", args...)
		c.Stdin = in
		out, err := c.CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	if os.Getenv("TRY_INSTALL") != "" {
		if err := knative.Install(ctx, kubectl, "../tools/knative"); err != nil {
			t.Fatal(err)
		}
	}
	rc, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	i, err := knative.NewIngress(rc, "default/gw", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Run(ctx); err != nil {
		t.Fatal(err)
	}
}
