//go:build integration

package local

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// A gateway that starts while the control plane hangs routes as before, by what its node's
// daemon knows.
func TestFreshGatewayWithoutControlPlane(t *testing.T) {
	deploy(t, testbed.Function{Name: "fresh"})
	// The instance is what there is to be known. While a daemon is in the way, the gateway may not
	// have heard of it.
	eventually(t, "the function is hot", func() error {
		a, err := call{function: "fresh"}.do(t.Context())
		if err == nil && (a.status != http.StatusOK || a.header.Get(filterapi.HeaderRequest) != "") {
			err = fmt.Errorf("%d %s by request %q", a.status, a.body, a.header.Get(filterapi.HeaderRequest))
		}
		return err
	})
	controlPlane, gateway := bed.PID("headstart-controlplane"), bed.PID("gateway-"+testbed.Edge)
	if err := syscall.Kill(controlPlane, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := func() { _ = syscall.Kill(controlPlane, syscall.SIGCONT) } // again at the end, whatever happens
	t.Cleanup(goOn)
	if err := syscall.Kill(gateway, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the gateway is killed", func() error {
		if !errors.Is(syscall.Kill(gateway, 0), syscall.ESRCH) {
			return fmt.Errorf("process %d is still there", gateway)
		}
		return nil
	})
	eventually(t, "a fresh gateway routes", func() error {
		a, err := call{function: "fresh"}.do(t.Context())
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("%d %s", a.status, a.body)
		}
		return err
	})
	goOn()
	// It follows the control plane again: a new function is routed.
	deploy(t, testbed.Function{Name: "fresher"})
	eventually(t, "a new function is routed", func() error {
		a, err := call{function: "fresher"}.do(t.Context())
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("%d %s", a.status, a.body)
		}
		return err
	})
}
