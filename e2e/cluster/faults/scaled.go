package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
)

const (
	// scaleToN is the scenario in which others scale a workload, too.
	scaleToN = "scale_to_n"
	// scaledIdle is its functions' idle window.
	scaledIdle = 5 * time.Second
	// scaledWithin is several times what a HorizontalPodAutoscaler, which looks every 15 s, or an idle window takes.
	scaledWithin = time.Minute
	// fewest and most are what it sets, remembered and setReplicas what a Deployment and a StatefulSet are to come back with.
	fewest, most, remembered, setReplicas = 1, 5, 3, 2
	// restsFor is longer than the time between two looks of a HorizontalPodAutoscaler.
	restsFor = 20 * time.Second

	deploymentKind, setKind = "deployment", "statefulset"
)

// autoscaler has no metrics to go by: the cluster has no server of metrics. It keeps to its bounds.
const autoscaler = `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[1]s, namespace: %[2]s, labels: {part: %[3]s}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  minReplicas: %[4]d
  maxReplicas: %[5]d
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]
`

// scaledByTwo has a HorizontalPodAutoscaler scale a function from one to many and back under load, and then Headstart to zero and
// from there; then a Deployment and a StatefulSet come back with the replicas that they had.
func scaledByTwo(ctx context.Context, r *rig, o *Outcome) error {
	bounds := func(least, most int) error {
		return r.Apply(ctx, fmt.Sprintf(autoscaler, scaled, world.Functions, part, least, most))
	}
	r.comesBack(ctx, o, deploymentKind, scaled, fewest)
	traffic := r.loadOn(ctx, scaled)
	var err error
	for _, of := range []int{most, fewest} {
		if err = bounds(of, of); err != nil {
			break
		}
		o.promisedWithin(ctx, scaledWithin, fmt.Sprintf("the autoscaler's %d pods", of), r.pods(scaled, of))
		err = wait(ctx, aftermath)
	}
	o.Odd = traffic.Stop()
	if err != nil {
		return err
	}
	r.has(ctx, o, deploymentKind, scaled, 0)
	if err := wait(ctx, restsFor); err != nil {
		return err
	}
	if err := r.replicas(deploymentKind, scaled, 0)(ctx); err != nil {
		o.broken("the autoscaler does not rest at zero: %v", err)
	}
	r.comesBack(ctx, o, deploymentKind, scaled, fewest)

	err = errors.Join(
		r.kubectl(ctx, "-n", world.Functions, "delete", "horizontalpodautoscaler", scaled),
		r.kubectl(ctx, "-n", world.Functions, "scale", "deployment", scaled, fmt.Sprintf("--replicas=%d", remembered)))
	if err != nil {
		return err
	}
	r.comesBack(ctx, o, deploymentKind, scaled, remembered)
	r.comesBack(ctx, o, setKind, set, setReplicas)
	return ctx.Err()
}

// comesBack waits until a function is at zero and sends it a request, with which it is to have so many replicas.
func (r *rig) comesBack(ctx context.Context, o *Outcome, kind, function string, replicas int) {
	r.has(ctx, o, kind, function, 0)
	o.Cold.note(function, r.ask(ctx, function), true, nil)
	r.has(ctx, o, kind, function, replicas)
}

// has waits until a function's workload has so many replicas, as desired: what Headstart writes.
func (r *rig) has(ctx context.Context, o *Outcome, kind, function string, replicas int) {
	o.promisedWithin(ctx, scaledWithin, fmt.Sprintf("%d replicas of %s", replicas, function), r.replicas(kind, function, replicas))
}

func (r *rig) replicas(kind, function string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := r.Output(ctx, nil, "kubectl", "-n", world.Functions, "get", kind, function, "-o", "jsonpath={.spec.replicas}")
		if err == nil && strings.TrimSpace(out) != strconv.Itoa(want) {
			err = fmt.Errorf("it has %s", out)
		}
		return err
	}
}

// pods looks whether a function has so many ready pods and no others.
func (r *rig) pods(function string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		pods, err := r.kube.CoreV1().Pods(world.Functions).List(ctx, metav1.ListOptions{LabelSelector: "app=" + function})
		if err != nil {
			return err
		}
		ready := 0
		for _, p := range pods.Items {
			if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				ready++
			}
		}
		if ready != want || len(pods.Items) != want {
			return errors.Join(fmt.Errorf("%d pods, %d of them ready", len(pods.Items), ready), wait(ctx, retryInterval))
		}
		return nil
	}
}
