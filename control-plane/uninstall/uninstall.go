// Package uninstall takes Headstart out of a cluster before its chart is deleted: what
// the control plane wrote, and what the installer put on the nodes. What of it has
// happened already is not done again, so it can be interrupted and repeated.
//
// The order keeps requests working: idle functions get an instance while the control
// plane can still deliver to it, then the gateways get back Istio's own endpoints, and
// only then the daemons go.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// poll is how often the cluster is asked for what is awaited.
	poll = 500 * time.Millisecond
	// callTimeout bounds one call to the API server.
	callTimeout = 10 * time.Second
)

// Names of what the chart makes.
const (
	controlPlane = "headstart-controlplane"
	daemons      = "headstart-node"
	installers   = "headstart-installer"
	// nameLabel is the label that finds the pods of each by its name.
	nameLabel = "app.kubernetes.io/name"
)

// Mesh is where gateways have their configuration from (istio.Writer).
type Mesh interface {
	// Remove takes back what the control plane has written there.
	Remove(ctx context.Context) error
}

// Uninstaller works on one cluster.
type Uninstaller struct {
	Client kubernetes.Interface
	Mesh   Mesh
	// Namespace is Headstart's.
	Namespace string
	// Node is the DaemonSet, in YAML, whose pods' init containers take Headstart off
	// their nodes.
	Node []byte
	Log  *slog.Logger
}

// Run does all of it, or says what is left to do.
func (u *Uninstaller) Run(ctx context.Context) error {
	for _, step := range []struct {
		does string
		do   func(context.Context) error
	}{
		{"giving idle functions an instance", u.wake},
		{"stopping the control plane", u.stopControlPlane},
		{"giving functions an instance that became idle meanwhile", u.wakeAgain},
		{"removing functions from the mesh", u.Mesh.Remove},
		{"stopping the nodes' daemons and installers", u.stopDaemons},
		{"taking Headstart off the nodes", u.cleanNodes},
	} {
		u.Log.Info(step.does)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.does, err)
		}
	}
	u.Log.Info("nothing of Headstart is left but what the chart has")
	return nil
}

// await asks until done, an error that stays, or ctx's end; then last says what was
// missing.
func await(ctx context.Context, ask func(context.Context) (done bool, last string, err error)) error {
	for {
		done, last, err := ask(ctx)
		switch {
		case err != nil && !passes(err):
			return err
		case err != nil:
			last = err.Error()
		case done:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", last, context.Cause(ctx))
		case <-time.After(poll):
		}
	}
}

// passes says that another try may succeed: where the API server runs on a node whose
// containerd restarts, it is away for a moment.
func passes(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonUnknown, // no answer at all
		metav1.StatusReasonServerTimeout, metav1.StatusReasonTimeout, metav1.StatusReasonServiceUnavailable,
		metav1.StatusReasonTooManyRequests, metav1.StatusReasonInternalError:
		return true
	}
	return false
}

// call bounds one call.
func call(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return do(ctx)
}

// all joins what went wrong with several objects.
func all[T any](items []T, do func(*T) error) error {
	var errs []error
	for i := range items {
		errs = append(errs, do(&items[i]))
	}
	return errors.Join(errs...)
}
