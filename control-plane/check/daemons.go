package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

func lookDaemons(ctx context.Context, l *look) Outcome {
	d, err := objects.Get[appsv1.DaemonSet](ctx, l.Objects, objects.DaemonSets, l.Namespace, daemonName)
	if apierrors.IsNotFound(err) {
		return fail("namespace %s has no DaemonSet %s", l.Namespace, daemonName)
	}
	if err != nil {
		return unknown("the daemons", err)
	}
	s := d.Status
	count := fmt.Sprintf("%d of %d ready", s.NumberReady, s.DesiredNumberScheduled)
	switch {
	case s.DesiredNumberScheduled == 0:
		return fail("no node is to have one; see the DaemonSet's node selector and tolerations")
	case s.NumberReady == s.DesiredNumberScheduled && s.UpdatedNumberScheduled < s.DesiredNumberScheduled:
		return warn("%s, %d of an earlier version", count, s.DesiredNumberScheduled-s.UpdatedNumberScheduled)
	case s.NumberReady == s.DesiredNumberScheduled:
		return pass("%s", count)
	}
	pods, err := l.daemonPods(ctx)
	if err != nil {
		return fail("%s", count)
	}
	return fail("%s", count).with(waiting(pods))
}

// daemonPods are the pods of the DaemonSet.
func (l *look) daemonPods(ctx context.Context) ([]corev1.Pod, error) {
	return l.podsOnce.get(func() ([]corev1.Pod, error) {
		d, err := objects.Get[appsv1.DaemonSet](ctx, l.Objects, objects.DaemonSets, l.Namespace, daemonName)
		if err != nil {
			return nil, err
		}
		selector := labels.Set(d.Spec.Selector.MatchLabels).String()
		return objects.List[corev1.Pod](ctx, l.Objects, objects.Pods, l.Namespace, selector)
	})
}

func lookNodes(ctx context.Context, l *look) Outcome {
	ready, err := l.readyNodes(ctx)
	if err != nil {
		return unknown("the nodes", err)
	}
	pods, err := l.daemonPods(ctx)
	if err != nil {
		return unknown("the daemons", err)
	}
	var problems []Problem
	drifted, err := l.drifted(ctx)
	if err != nil {
		return unknown("the nodes", err)
	}
	said, err := l.unsuited(ctx)
	if err != nil {
		return unknown("the installers", err)
	}
	unsuited := 0
	for _, p := range pods {
		if p.Spec.NodeName == "" || ready[p.Spec.NodeName] {
			continue
		}
		message := "it has a daemon, and not the label " + nodeLabel + "=" + nodeReady
		if why := said[p.Spec.NodeName]; why != "" {
			message = why + "; its functions get inputs as bodies, and not as files"
			unsuited++
		}
		problems = append(problems, Problem{Object: "Node " + p.Spec.NodeName, Message: message})
	}
	if len(drifted) > 0 {
		return fail("%d of %d drifted", len(drifted), len(ready)).with(append(drifted, problems...))
	}
	if labelled := len(pods) - len(problems); len(problems) > 0 && len(problems) == unsuited {
		return warn("%d of %d labelled, the others cannot be", labelled, len(pods)).with(problems)
	} else if len(problems) > 0 {
		// Without an installer it is for the operator to say which nodes are ready.
		return l.lacking(ctx, partInstaller, fail("%d of %d labelled", labelled, len(pods)).with(problems))
	}
	return pass("%d labelled %s=%s", len(ready), nodeLabel, nodeReady)
}

// reported is longer than kubelets take to tell which runtimes there are: they ask every 5 s, and tell every 10 s.
const reported = 20 * time.Second

// drifted are the nodes that have lost the runtime. Where the installer has just put it there, the kubelet has yet to say so.
func (l *look) drifted(ctx context.Context) (problems []Problem, err error) {
	message := "drifted: its containerd has lost the runtime " + runtimeName + ", as somebody has written its configuration"
	if !l.off(ctx, partInstaller) {
		message += "; delete the node's pod of DaemonSet " + installerName + ", and it is installed again"
	}
	nodes, err := l.nodes(ctx)
	for again := false; err == nil; again = true {
		problems = nil
		for i := range nodes {
			if object.Drifted(&nodes[i]) {
				problems = append(problems, Problem{Object: "Node " + nodes[i].Name, Message: message})
			}
		}
		if len(problems) == 0 || again {
			return problems, nil
		}
		later := time.NewTimer(reported)
		defer later.Stop()
		select {
		case <-later.C:
		case <-ctx.Done():
			return problems, nil
		}
		nodes, err = objects.List[corev1.Node](ctx, l.Objects, objects.Nodes, "", "")
	}
	return nil, err
}

// unsuited is what installers have said of nodes that cannot have the runtime, by node: they end well, and have last words.
func (l *look) unsuited(ctx context.Context) (map[string]string, error) {
	pods, err := objects.List[corev1.Pod](ctx, l.Objects, objects.Pods, l.Namespace, "app.kubernetes.io/name="+installerName)
	if err != nil {
		return nil, err
	}
	said := map[string]string{}
	for _, p := range pods {
		for _, c := range p.Status.InitContainerStatuses {
			if e := c.State.Terminated; e != nil && e.ExitCode == 0 && c.Name == installerContainer {
				said[p.Spec.NodeName] = strings.TrimSpace(e.Message)
			}
		}
	}
	return said, nil
}

func lookConnected(ctx context.Context, l *look) Outcome {
	s, err := l.status(ctx)
	if err != nil {
		return unknown("its status", err)
	}
	pods, err := l.daemonPods(ctx)
	if err != nil {
		return unknown("the daemons", err)
	}
	versions, partly := map[string]string{}, map[string][]string{}
	for _, n := range s.Nodes {
		versions[n.Name], partly[n.Name] = n.Version, n.Away
	}
	var away, half, other []Problem
	for _, p := range pods {
		v, connected := versions[p.Spec.NodeName]
		switch {
		case !podReady(p): // another check's
		case !connected:
			away = append(away, Problem{Object: "Node " + p.Spec.NodeName, Message: "its daemon is not connected to the control plane"})
		case len(partly[p.Spec.NodeName]) > 0:
			half = append(half, Problem{Object: "Node " + p.Spec.NodeName, Message: "its daemon is not connected to control plane " + strings.Join(partly[p.Spec.NodeName], ", ")})
		case v != s.Version:
			other = append(other, Problem{Object: "Node " + p.Spec.NodeName, Message: "its daemon is version " + v + ", the control plane " + s.Version})
		}
	}
	switch {
	case len(away) > 0:
		return fail("%d %s", len(s.Nodes), plural(len(s.Nodes), "is", "are")).with(away)
	case len(half) > 0:
		return warn("%d connected, %d not to all control planes", len(s.Nodes), len(half)).with(half)
	case len(other) > 0:
		return warn("%d connected, %d of another version", len(s.Nodes), len(other)).with(other)
	case len(s.Nodes) == 0:
		return fail("none is")
	}
	return pass("%d", len(s.Nodes))
}

// waiting says why pods are not ready.
func waiting(pods []corev1.Pod) []Problem {
	var problems []Problem
	for _, p := range pods {
		if podReady(p) {
			continue
		}
		message := "it is " + strings.ToLower(string(p.Status.Phase))
		if p.Spec.NodeName != "" {
			message += " on node " + p.Spec.NodeName
		}
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			switch w, e := c.State.Waiting, c.LastTerminationState.Terminated; {
			case w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating":
				message += fmt.Sprintf("; container %s: %s %s", c.Name, w.Reason, w.Message)
			case e != nil && !c.Ready:
				message += fmt.Sprintf("; container %s ended with %d: %s %s", c.Name, e.ExitCode, e.Reason, e.Message)
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				message += "; " + c.Message
			}
		}
		problems = append(problems, Problem{Object: "Pod " + p.Namespace + "/" + p.Name, Message: strings.TrimSpace(message)})
	}
	return problems
}

func podReady(p corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
