package check

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// Names that the chart and manifests/istio share with the checks.
const (
	controlPlaneName   = "headstart-controlplane" // Deployment
	daemonName         = "headstart-node"         // DaemonSet
	installerName      = "headstart-installer"    // DaemonSet, and its init container that installs
	installerContainer = "installer"
	authorityName      = "headstart-ca" // Secret and ConfigMap
	authorityKey       = "ca.crt"
	runtimeName        = "headstart" // RuntimeClass and its handler
	nodeLabel          = "headstart.dev/node"
	nodeReady          = "ready"
)

// look is one run of checks. What several checks look at is asked for once.
type look struct {
	Env
	nodesOnce        once[[]corev1.Node]
	statusOnce       once[admin.Status]
	podsOnce         once[[]corev1.Pod]
	storesOnce       once[configured[stores.Stores]]
	destinationsOnce once[configured[destinations.Destinations]]

	deploymentOnce once[appsv1.Deployment]
}

// once remembers an answer; checks run one after the other.
type once[T any] struct {
	asked bool
	value T
	err   error
}

func (o *once[T]) get(ask func() (T, error)) (T, error) {
	if !o.asked {
		o.asked = true
		o.value, o.err = ask()
	}
	return o.value, o.err
}

func (l *look) nodes(ctx context.Context) ([]corev1.Node, error) {
	return l.nodesOnce.get(func() ([]corev1.Node, error) {
		return objects.List[corev1.Node](ctx, l.Objects, objects.Nodes, "", "")
	})
}

func (l *look) status(ctx context.Context) (admin.Status, error) {
	return l.statusOnce.get(func() (admin.Status, error) { return l.Status(ctx) })
}

// readyNodes are the names of nodes where a sandbox of ours has been tried.
func (l *look) readyNodes(ctx context.Context) (map[string]bool, error) {
	nodes, err := l.nodes(ctx)
	if err != nil {
		return nil, err
	}
	ready := map[string]bool{}
	for _, n := range nodes {
		if n.Labels[nodeLabel] == nodeReady {
			ready[n.Name] = true
		}
	}
	return ready, nil
}

// plural is for counts in messages.
func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
