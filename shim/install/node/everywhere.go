package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// podLabel marks the pods that Everywhere runs; its value is the node's name, of which
	// a label takes the first maxLabel characters.
	podLabel = "headstart.dev/everywhere"
	maxLabel = 63
	// pollInterval is how often the pods are looked at.
	pollInterval = time.Second
	// removeTimeout bounds the removal of the pods.
	removeTimeout = 30 * time.Second
)

// Everywhere runs a copy of pod, which has a namespace, on each node that its nodeSelector
// takes, and returns when all have ended, with an error for each that failed and each
// node that is not ready. The scheduler is not asked: taints and a lack of room keep
// nothing off a node that has to be cleaned.
func Everywhere(ctx context.Context, client corev1client.CoreV1Interface, pod *corev1.Pod, log *slog.Logger) (err error) {
	if pod.Namespace == "" || pod.Name == "" {
		return errors.New("the pod needs a name and a namespace")
	}
	nodes, err := client.Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(pod.Spec.NodeSelector).String()})
	if err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	pods := client.Pods(pod.Namespace)
	open := map[string]string{} // pods that have not ended, and their nodes
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		err = errors.Join(err, sweep(clean, pods))
	}()
	var failed []error
	for _, n := range nodes.Items {
		if !isReady(&n) {
			failed = append(failed, fmt.Errorf("node %s is not ready; run this again when it is back", n.Name))
			continue
		}
		made, err := pods.Create(ctx, on(pod, n.Name), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("running a pod on node %s: %w", n.Name, err)
		}
		open[made.Name] = n.Name
	}
	for len(open) > 0 {
		select {
		case <-ctx.Done():
			return errors.Join(append(failed, fmt.Errorf("waiting for nodes %s: %w", strings.Join(slices.Sorted(maps.Values(open)), ", "), context.Cause(ctx)))...)
		case <-time.After(pollInterval):
		}
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: podLabel})
		if err != nil {
			// The control plane may be on a node whose containerd restarts just now.
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				return fmt.Errorf("looking at the pods: %w", err)
			}
			log.Warn("the API server does not say how the pods are; trying again", "error", err)
			continue
		}
		for _, p := range list.Items {
			name, ours := open[p.Name]
			switch {
			case !ours:
			case p.Status.Phase == corev1.PodSucceeded:
				log.Info("done", "node", name)
				delete(open, p.Name)
			case p.Status.Phase == corev1.PodFailed:
				failed = append(failed, fmt.Errorf("node %s: %s", name, lastWords(&p)))
				delete(open, p.Name)
			}
		}
	}
	return errors.Join(failed...)
}

// sweep removes the pods, also those of a run that was interrupted.
func sweep(ctx context.Context, pods corev1client.PodInterface) error {
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: podLabel})
	if err != nil {
		return fmt.Errorf("removing the pods: %w", err)
	}
	for _, p := range list.Items {
		if err := pods.Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("removing pod %s: %w", p.Name, err)
		}
	}
	return nil
}

// on is a copy of pod for one node.
func on(pod *corev1.Pod, node string) *corev1.Pod {
	p := pod.DeepCopy()
	p.Name, p.GenerateName = "", pod.Name+"-"
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels[podLabel] = strings.TrimRight(node[:min(len(node), maxLabel)], "-.")
	p.Spec.NodeName = node
	return p
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// lastWords is what a failed pod has to say.
func lastWords(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.Message != "" {
			return strings.TrimSpace(t.Message)
		}
	}
	if p.Status.Message != "" {
		return p.Status.Message
	}
	return "the pod failed; see its log"
}
