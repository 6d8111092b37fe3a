package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// singles instances become ready one after the other, in rounds of which each ends with
	// as many as a few nodes hold.
	singleRounds, singles = 4, 25
	// Then bursts of them do so at once, which starts more processes than the machine has
	// cores: what that costs is told beside.
	burstRounds, burst = 3, 10
	// envoyPoll is how often Envoy is asked; its own part of the figures. More often would
	// keep Envoy's main thread from what it is asked about.
	envoyPoll = 2 * time.Millisecond
	// appearTimeout is many times the bound.
	appearTimeout = 90 * time.Second
)

// readiness measures how long after a pod's readiness is in the API server's watch the
// gateway's Envoy has it as an endpoint. The watch is this program's own, so its own delay
// counts in Headstart's favour by as much as the two watches differ: less than 1 ms, on a
// machine that is not short of cores.
func (b *bench) readiness(ctx context.Context) error {
	progress("from readiness to Envoy")
	const name = "ready"
	if err := b.Deploy(ctx, world.Function{Name: name, Replicas: 1, Annotations: map[string]string{"headstart.dev/scale-to-zero": "1h"}}); err != nil {
		return err
	}
	envoy, err := b.GatewayEnvoy(ctx)
	if err != nil {
		return err
	}
	defer envoy.Close()
	server, err := b.REST()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return err
	}
	f := &followed{client: client, envoy: envoy, name: name}
	var alone, together []time.Duration
	for range singleRounds {
		if err := f.begin(ctx); err != nil {
			return err
		}
		for n := range singles {
			took, err := f.scaleTo(ctx, n+2)
			if err != nil {
				return err
			}
			alone = append(alone, took...)
		}
	}
	for range burstRounds {
		if err := f.begin(ctx); err != nil {
			return err
		}
		took, err := f.scaleTo(ctx, 1+burst)
		if err != nil {
			return err
		}
		together = append(together, took...)
	}
	if len(alone) < singles || len(together) < burst {
		return fmt.Errorf("only %d and %d instances were seen to become ready", len(alone), len(together))
	}
	b.summary["ready_to_envoy_p99_ms"], b.summary["ready_to_envoy_p50_ms"] = quantile(alone, 0.99), quantile(alone, 0.5)
	b.summary["ready_to_envoy_n"] = float64(len(alone))
	b.summary["ready_to_envoy_burst_p99_ms"], b.summary["ready_to_envoy_burst_p50_ms"] = quantile(together, 0.99), quantile(together, 0.5)
	b.summary["ready_to_envoy_burst_n"] = float64(len(together))
	return nil
}

// followed is a function whose instances are looked for in the gateway's Envoy.
type followed struct {
	client kubernetes.Interface
	envoy  *world.EnvoyOf
	name   string
}

// begin scales the function to one, and waits until the others' ends are over.
func (f *followed) begin(ctx context.Context) error {
	if _, err := f.scaleTo(ctx, 1); err != nil {
		return err
	}
	return testbed.Poll(ctx, appearTimeout, func(ctx context.Context) error {
		pods, err := f.client.CoreV1().Pods(world.Functions).List(ctx, metav1.ListOptions{LabelSelector: "app=" + f.name})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("%d pods are left", len(pods.Items))
		}
		return err
	})
}

// scaleTo scales the function and returns how long each pod that became ready took to be
// Envoy's. It returns when Envoy has as many as there are replicas.
func (f *followed) scaleTo(ctx context.Context, replicas int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, appearTimeout)
	defer cancel()
	w, err := f.client.CoreV1().Pods(world.Functions).Watch(ctx, metav1.ListOptions{LabelSelector: "app=" + f.name})
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	ready := map[string]time.Time{} // by address; those that were ready before have none
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range w.ResultChan() {
			pod, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			at := time.Now()
			mu.Lock()
			if _, known := ready[pod.Status.PodIP]; isReady(pod) && !known {
				ready[pod.Status.PodIP] = at
			}
			mu.Unlock()
		}
	})
	defer watching.Wait()
	defer w.Stop()
	seen := map[string]time.Time{}
	for _, a := range f.addresses(ctx) {
		seen[a] = time.Time{} // from before: not measured
	}
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	if _, err := f.client.AppsV1().Deployments(world.Functions).Patch(ctx, f.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "scale"); err != nil {
		return nil, err
	}
	for {
		now := f.addresses(ctx)
		at := time.Now()
		for _, a := range now {
			if _, known := seen[a]; !known {
				seen[a] = at
			}
		}
		if len(now) == replicas {
			break
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the gateway has %d of %d endpoints: %w", len(now), replicas, ctx.Err())
		case <-time.After(envoyPoll):
		}
	}
	mu.Lock()
	defer mu.Unlock()
	var took []time.Duration
	for a, at := range seen {
		if readyAt, ok := ready[a]; ok && !at.IsZero() {
			took = append(took, max(0, at.Sub(readyAt)))
		}
	}
	return took, nil
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// addresses are the IPs of the function's endpoints in Envoy, without the node's daemon.
func (f *followed) addresses(ctx context.Context) []string {
	page, err := f.envoy.Get(ctx, "/clusters?filter=outbound.80..%5E?"+f.name+".default")
	if err != nil {
		return nil
	}
	var all []string
	cluster := fmt.Sprintf("outbound|80||%s.%s.svc.cluster.local::", f.name, world.Functions)
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(line, cluster)
		if !ok {
			continue
		}
		address, what, _ := strings.Cut(rest, "::")
		if ip, _, ok := strings.Cut(address, ":"); ok && strings.HasPrefix(what, "health_flags") {
			all = append(all, ip)
		}
	}
	return all
}

// quantile is in milliseconds, by the nearest rank; took has at least one.
func quantile(took []time.Duration, q float64) float64 {
	slices.Sort(took)
	rank := int(math.Ceil(q*float64(len(took)))) - 1
	return float64(took[max(0, rank)]) / float64(time.Millisecond)
}
