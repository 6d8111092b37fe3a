// Package node is a node in Kubernetes' API: its label, and the events about it.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// Label is on nodes where sandboxes of Headstart can run; the RuntimeClass selects it.
	Label = "headstart.dev/node"
	// ready is its value.
	ready = "ready"
	// component is who events are from.
	component = "headstart-installer"
	// patience is how long the API server may be away: on a k3s server it restarts with
	// containerd.
	patience      = 2 * time.Minute
	retryInterval = time.Second
	// eventTimeout bounds an announcement, on which nothing depends.
	eventTimeout = 5 * time.Second
)

// Node is one node.
type Node struct {
	Name   string
	Client corev1client.CoreV1Interface
	Log    *slog.Logger
}

// SetReady is install.Node's. A node that is not there any more is not ready; one that is not ready has no labels of
// volumes either.
func (n *Node) SetReady(ctx context.Context, is bool) error {
	var value any
	if is {
		value = ready
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{Label: value}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, err := n.Client.Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: component})
		if err == nil && !is {
			_, err = n.Client.Nodes().Apply(ctx, corev1ac.Node(n.Name), metav1.ApplyOptions{FieldManager: nodeapi.VolumeLabels, Force: true})
		}
		switch {
		case err == nil, apierrors.IsNotFound(err) && !is:
			return nil
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
			return fmt.Errorf("labelling node %s: %w; the installer's service account needs patch on nodes", n.Name, err)
		}
		n.Log.Warn("the API server does not take the node's label; trying again", "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("labelling node %s: %w", n.Name, errors.Join(err, context.Cause(ctx)))
		case <-time.After(retryInterval):
		}
	}
}

// Announce is install.Node's: an event of the node.
func (n *Node) Announce(ctx context.Context, reason, message string) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	now := metav1.Now()
	_, err := n.Client.Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: n.Name + ".", Namespace: metav1.NamespaceDefault},
		// The kubelet names the node in place of its UID as well; so they are shown together.
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: n.Name, UID: types.UID(n.Name)},
		Reason:         reason, Message: message, Type: corev1.EventTypeNormal,
		Source:         corev1.EventSource{Component: component, Host: n.Name},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		n.Log.Warn("an event of the node is lost", "reason", reason, "error", err)
	}
}

// None is where there is no Kubernetes: a machine that is being prepared.
type None struct{}

// SetReady does nothing.
func (None) SetReady(context.Context, bool) error { return nil }

// Announce does nothing.
func (None) Announce(context.Context, string, string) {}
