package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// loadOn begins a load on a function that a scenario has for itself.
func (r *rig) loadOn(ctx context.Context, function string) *load.Load {
	return load.Start(ctx, load.Config{Request: r.request(function, "/healthz", false), Rate: hotRate, Timeout: hotTimeout})
}

// eventuallyAnnotated annotates when the API server has forgotten what it checked.
func (r *rig) eventuallyAnnotated(ctx context.Context, key, value string) error {
	return testbed.Poll(ctx, recoveryMost, func(ctx context.Context) error { return r.annotate(ctx, key, value) })
}

// eventSays looks for an event on a Service that has all parts.
func (r *rig) eventSays(service string, parts ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		events, err := r.kube.CoreV1().Events(world.Functions).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,involvedObject.name=" + service})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if all(e.Message, parts) {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("%d events, none of it", len(events.Items)), wait(ctx, retryInterval))
	}
}

// checkSays looks for a failure in `headstart check` that has all parts.
func (r *rig) checkSays(parts ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := r.Output(ctx, nil, "headstart", "check", "-o", "json", "--kubeconfig", r.Kubeconfig())
		if err == nil {
			return errors.New("all checks pass")
		}
		if !all(out, parts) {
			return fmt.Errorf("it says %.2000s", out)
		}
		return nil
	}
}

func all(text string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}

// filterOf looks whether a function has its part in the mesh's configuration.
func (r *rig) filterOf(function string, wanted bool) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := r.Output(ctx, nil, "kubectl", "-n", meshNamespace, "get", "envoyfilter", "headstart."+world.Functions+"."+function, "-o", "name", "--ignore-not-found")
		if err == nil && (strings.TrimSpace(out) != "") != wanted {
			err = fmt.Errorf("EnvoyFilter: %q", out)
		}
		return err
	}
}

// instanceOf waits for the function's only pod to have a node and, if addressed is set, an IP.
func (r *rig) instanceOf(ctx context.Context, function string, addressed bool) (pod corev1.Pod, err error) {
	err = testbed.Poll(ctx, recoveryMost, func(ctx context.Context) error {
		pods, err := r.kube.CoreV1().Pods(world.Functions).List(ctx, metav1.ListOptions{LabelSelector: "app=" + function})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.DeletionTimestamp == nil && p.Spec.NodeName != "" && (!addressed || p.Status.PodIP != "") {
				pod = p
				return nil
			}
		}
		return fmt.Errorf("function %s has no instance yet", function)
	})
	return pod, err
}

// podsOn returns the nodes that have pods with a label.
func (r *rig) nodesOf(ctx context.Context, namespace, label string) (map[string]bool, error) {
	pods, err := r.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for _, p := range pods.Items {
		nodes[p.Spec.NodeName] = true
	}
	return nodes, nil
}

var errGateways = errors.New("there is a gateway on all nodes but the first")

// nodeWithoutGateway is one whose loss does not take connections of clients along, and not
// the first, which leads to the services.
func (r *rig) nodeWithoutGateway(ctx context.Context) (string, error) {
	taken, err := r.nodesOf(ctx, meshNamespace, "app="+gatewayName)
	if err != nil {
		return "", err
	}
	for _, n := range r.Nodes()[1:] {
		if !taken[n.Name] {
			return n.Name, nil
		}
	}
	return "", errGateways
}
