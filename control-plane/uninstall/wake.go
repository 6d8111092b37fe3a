package uninstall

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// readyTimeout is how long functions get to start. One that does not start is no reason
// to keep Headstart.
const readyTimeout = time.Minute

// endSeconds is what a control plane gets to end, instead of the chart's 60: it waits for as
// long as the kubelet lets it, and then takes less than the 2 s that a kubelet adds.
const endSeconds = 1

// workload is what makes a function's pods.
type workload struct {
	kind, namespace, name string
	uid                   types.UID
	replicas, ready       int32
}

func (w workload) String() string { return w.kind + " " + w.namespace + "/" + w.name }

// wake scales the functions up that Headstart has scaled to zero, to the replicas that they had: nobody else would do it
// any more. It waits until one of each is ready.
func (u *Uninstaller) wake(ctx context.Context) error {
	asleep, err := u.asleep(ctx)
	if err != nil {
		return err
	}
	if err := u.scaleUp(ctx, asleep); err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	woken := map[string]bool{}
	for _, w := range asleep {
		woken[w.String()] = true
	}
	err = await(within, func(ctx context.Context) (bool, string, error) {
		now, err := u.scaled(ctx)
		if err != nil {
			return false, "", err
		}
		for _, w := range now {
			if woken[w.String()] && w.ready == 0 {
				return false, w.String() + " is not ready", nil
			}
		}
		return true, "", nil
	})
	if err != nil && ctx.Err() == nil {
		u.Log.Warn("going on without it", "cause", err)
		return nil
	}
	return err
}

// wakeAgain is for those that the control plane scaled down before it was stopped.
func (u *Uninstaller) wakeAgain(ctx context.Context) error {
	asleep, err := u.asleep(ctx)
	if err != nil {
		return err
	}
	return u.scaleUp(ctx, asleep)
}

func (u *Uninstaller) asleep(ctx context.Context) ([]workload, error) {
	all, err := u.scaled(ctx)
	return slices.DeleteFunc(all, func(w workload) bool { return w.replicas > 0 }), err
}

// kept are the replicas that workloads had, nil if nothing of that is there. With the chart they go for good.
func (u *Uninstaller) kept(ctx context.Context) (kept *object.Replicas, err error) {
	err = await(ctx, func(ctx context.Context) (bool, string, error) {
		var c *corev1.ConfigMap
		err := call(ctx, func(ctx context.Context) (err error) {
			c, err = u.Client.CoreV1().ConfigMaps(u.Namespace).Get(ctx, kube.ReplicasName, metav1.GetOptions{})
			return err
		})
		switch {
		case apierrors.IsNotFound(err):
			return true, "", nil
		case err == nil:
			kept, err = object.ReplicasOf(c)
		}
		return true, "", err
	})
	if err != nil {
		return nil, fmt.Errorf("reading how many replicas functions had: %w", err)
	}
	return kept, nil
}

func (u *Uninstaller) scaleUp(ctx context.Context, asleep []workload) error {
	if len(asleep) == 0 {
		return nil
	}
	kept, err := u.kept(ctx)
	if err != nil {
		return err
	}
	return all(asleep, func(w *workload) error {
		replicas := kept.Of(w.uid)
		u.Log.Info("scaling up", "workload", w.String(), "replicas", replicas)
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: w.name, Namespace: w.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		err := call(ctx, func(ctx context.Context) (err error) {
			if w.kind == object.StatefulSet {
				_, err = u.Client.AppsV1().StatefulSets(w.namespace).UpdateScale(ctx, w.name, scale, metav1.UpdateOptions{})
			} else {
				_, err = u.Client.AppsV1().Deployments(w.namespace).UpdateScale(ctx, w.name, scale, metav1.UpdateOptions{})
			}
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("scaling %s to %d replicas: %w", w, replicas, err)
		}
		return nil
	})
}

// scaled returns the workloads of functions that Headstart scales.
func (u *Uninstaller) scaled(ctx context.Context) (found []workload, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	services, err := u.Client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing services: %w", err)
	}
	deployments, err := u.Client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing deployments: %w", err)
	}
	sets, err := u.Client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing stateful sets: %w", err)
	}
	selectors := selectorsOf(services.Items)
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if d.Spec.Replicas != nil && selected(selectors[d.Namespace], d.Spec.Template.Labels) {
			found = append(found, workload{object.Deployment, d.Namespace, d.Name, d.UID, *d.Spec.Replicas, d.Status.ReadyReplicas})
		}
	}
	for i := range sets.Items {
		s := &sets.Items[i]
		if s.Spec.Replicas != nil && selected(selectors[s.Namespace], s.Spec.Template.Labels) {
			found = append(found, workload{object.StatefulSet, s.Namespace, s.Name, s.UID, *s.Spec.Replicas, s.Status.ReadyReplicas})
		}
	}
	return found, nil
}

// selectorsOf returns the selectors of the Services that ask to be scaled to zero, by
// namespace.
func selectorsOf(services []corev1.Service) map[string][]labels.Selector {
	selectors := map[string][]labels.Selector{}
	for _, s := range services {
		if _, asks := s.Annotations[policy.KeyScaleToZero]; asks && len(s.Spec.Selector) > 0 {
			selectors[s.Namespace] = append(selectors[s.Namespace], labels.SelectorFromSet(s.Spec.Selector))
		}
	}
	return selectors
}

func selected(selectors []labels.Selector, of map[string]string) bool {
	for _, s := range selectors {
		if s.Matches(labels.Set(of)) {
			return true
		}
	}
	return false
}

// stopControlPlane has it end, so that it does not write again what is removed. Its pods wait
// before they end, until daemons have found those that come for them; here none come. A kubelet does
// not cut short a wait that has begun, so the pods end by their own deletion, with a short grace. What
// makes pods goes first and leaves them: a replacement that has just started would wait as well.
func (u *Uninstaller) stopControlPlane(ctx context.Context) error {
	orphan := metav1.DeletePropagationOrphan
	leavePods := metav1.DeleteOptions{PropagationPolicy: &orphan}
	err := call(ctx, func(ctx context.Context) error {
		return u.Client.AppsV1().Deployments(u.Namespace).Delete(ctx, controlPlane, leavePods)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting deployment %s: %w", controlPlane, err)
	}
	err = call(ctx, func(ctx context.Context) error {
		named := metav1.ListOptions{LabelSelector: nameLabel + "=" + controlPlane}
		return u.Client.AppsV1().ReplicaSets(u.Namespace).DeleteCollection(ctx, leavePods, named)
	})
	if err != nil {
		return fmt.Errorf("deleting the replica sets of deployment %s: %w", controlPlane, err)
	}
	return await(ctx, func(ctx context.Context) (bool, string, error) {
		pods, err := u.pods(ctx, controlPlane)
		if err != nil || len(pods) == 0 {
			return true, "", err
		}
		left := fmt.Sprintf("%d pods are still there, such as %s", len(pods), pods[0].Name)
		return false, left, all(pods, func(p *corev1.Pod) error { return u.hurry(ctx, p) })
	})
}

// hurry has a pod end soon, in good order, unless it ends already.
func (u *Uninstaller) hurry(ctx context.Context, p *corev1.Pod) error {
	if p.DeletionTimestamp != nil {
		return nil
	}
	err := call(ctx, func(ctx context.Context) error {
		soon := int64(endSeconds)
		return u.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &soon, Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // or another one has its name by now
		return fmt.Errorf("ending pod %s: %w", p.Name, err)
	}
	return nil
}

func (u *Uninstaller) awaitNoPods(ctx context.Context, name string) error {
	return await(ctx, func(ctx context.Context) (bool, string, error) {
		pods, err := u.pods(ctx, name)
		if err != nil || len(pods) == 0 {
			return true, "", err
		}
		return false, fmt.Sprintf("%d pods are still there, such as %s", len(pods), pods[0].Name), nil
	})
}

func (u *Uninstaller) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pods, err := u.Client.CoreV1().Pods(u.Namespace).List(ctx, metav1.ListOptions{LabelSelector: nameLabel + "=" + name})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", name, err)
	}
	return pods.Items, nil
}

// stopDaemons ends them on all nodes, and what would install again.
func (u *Uninstaller) stopDaemons(ctx context.Context) error {
	if err := u.remove(ctx, installers); err != nil {
		return err
	}
	return u.remove(ctx, daemons)
}

// remove deletes a DaemonSet with its pods.
func (u *Uninstaller) remove(ctx context.Context, name string) error {
	foreground := metav1.DeletePropagationForeground
	err := call(ctx, func(ctx context.Context) error {
		return u.Client.AppsV1().DaemonSets(u.Namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting daemon set %s: %w", name, err)
	}
	if err := u.awaitNoPods(ctx, name); err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) (bool, string, error) {
		_, err := u.daemonSet(ctx, name)
		if apierrors.IsNotFound(err) {
			return true, "", nil
		}
		return false, "daemon set " + name + " is still there", err
	})
}

func (u *Uninstaller) daemonSet(ctx context.Context, name string) (*appsv1.DaemonSet, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return u.Client.AppsV1().DaemonSets(u.Namespace).Get(ctx, name, metav1.GetOptions{})
}
