package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// shownNodes is how many nodes an error speaks of.
const shownNodes = 5

// cleanNodes runs a pod on each node that takes Headstart off it, and waits for all.
func (u *Uninstaller) cleanNodes(ctx context.Context) error {
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(u.Node, &set); err != nil {
		return fmt.Errorf("reading the daemon set: %w", err)
	}
	if len(set.Spec.Template.Spec.InitContainers) == 0 {
		return fmt.Errorf("the daemon set has no init container that takes Headstart off a node")
	}
	set.Namespace = u.Namespace
	// One of an attempt before may be of another version.
	if err := u.remove(ctx, set.Name); err != nil {
		return err
	}
	err := call(ctx, func(ctx context.Context) error {
		_, err := u.Client.AppsV1().DaemonSets(u.Namespace).Create(ctx, &set, metav1.CreateOptions{})
		return err
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making daemon set %s: %w", set.Name, err)
	}
	told := map[string]bool{}
	err = await(ctx, func(ctx context.Context) (bool, string, error) {
		now, err := u.daemonSet(ctx, set.Name)
		if err != nil {
			return false, "", fmt.Errorf("looking at daemon set %s: %w", set.Name, err)
		}
		pods, err := u.pods(ctx, set.Name)
		if err != nil {
			return false, "", err
		}
		if now.Status.ObservedGeneration < now.Generation {
			return false, "the DaemonSet has not been checked yet", nil
		}
		missing := unfinished(pods)
		for _, m := range missing {
			if !told[m] {
				told[m] = true
				u.Log.Info("waiting", "for", m)
			}
		}
		if n := int(now.Status.DesiredNumberScheduled) - len(pods); n > 0 {
			missing = append(missing, fmt.Sprintf("%d nodes have no pod yet", n))
		}
		if len(missing) > shownNodes {
			missing = append(missing[:shownNodes], "...")
		}
		return len(missing) == 0, strings.Join(missing, "; "), nil
	})
	if err != nil {
		return err
	}
	return u.remove(ctx, set.Name)
}

// unfinished says which nodes still have something of Headstart, and why.
func unfinished(pods []corev1.Pod) []string {
	var missing []string
	for i := range pods {
		p := &pods[i]
		if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodInitialized && c.Status == corev1.ConditionTrue
		}) {
			continue
		}
		missing = append(missing, "node "+p.Spec.NodeName+": "+reason(p))
	}
	slices.Sort(missing)
	return missing
}

// reason is the installer's last word, or what the kubelet says of it.
func reason(p *corev1.Pod) string {
	for _, s := range p.Status.InitContainerStatuses {
		for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
			if t != nil && t.ExitCode != 0 {
				return strings.TrimSpace(lastLine(t.Message))
			}
		}
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return strings.TrimSpace(w.Reason + " " + w.Message)
		}
		if s.State.Running != nil {
			return "under way"
		}
	}
	return "the pod is " + string(p.Status.Phase)
}

// lastLine is where a program says why it ended.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return "the installer failed; look at its log"
	}
	return s[strings.LastIndexByte(s, '\n')+1:]
}
