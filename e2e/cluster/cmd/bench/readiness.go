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
	"k8s.io/client-go/kubernetes"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
)

const (
	// readinessRounds times readinessPods become ready and are looked for in Envoy.
	readinessRounds = 5
	readinessPods   = 10
	// envoyPoll is how often Envoy is asked; its own part of the figure.
	envoyPoll = time.Millisecond
	// appearTimeout is many times the bound.
	appearTimeout = 90 * time.Second
)

// readiness measures how long after a pod's readiness is in the API server's watch the
// gateway's Envoy has it as an endpoint. The watch is this program's own, so its own delay
// counts in Headstart's favour by as much as the two watches differ: less than 1 ms.
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
	var took []time.Duration
	for range readinessRounds {
		for _, replicas := range []int{1, 1 + readinessPods} {
			round, err := b.scaleAndWatch(ctx, client, envoy, name, replicas)
			if err != nil {
				return err
			}
			took = append(took, round...)
		}
	}
	b.summary["ready_to_envoy_p99_ms"], b.summary["ready_to_envoy_p50_ms"] = quantile(took, 0.99), quantile(took, 0.5)
	b.summary["ready_to_envoy_n"] = float64(len(took))
	return nil
}

// scaleAndWatch scales a function and returns how long each pod that became ready took to
// be Envoy's. It returns when Envoy has as many as there are replicas.
func (b *bench) scaleAndWatch(ctx context.Context, client kubernetes.Interface, envoy *world.EnvoyOf, name string, replicas int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, appearTimeout)
	defer cancel()
	w, err := client.CoreV1().Pods(world.Functions).Watch(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	ready := map[string]time.Time{} // by address; those that were ready before have none
	first := true
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
	for _, a := range addressesIn(ctx, envoy, name) {
		seen[a] = time.Time{} // from before: not measured
	}
	if err := b.Tool(ctx, nil, "kubectl", "-n", world.Functions, "scale", "deployment", name, fmt.Sprintf("--replicas=%d", replicas)); err != nil {
		return nil, err
	}
	for {
		now := addressesIn(ctx, envoy, name)
		at := time.Now()
		for _, a := range now {
			if _, known := seen[a]; !known {
				seen[a] = at
			}
		}
		if !first && len(now) == replicas {
			break
		}
		first = false
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

// addressesIn are the IPs of a function's endpoints in Envoy, without the node's daemon.
func addressesIn(ctx context.Context, envoy *world.EnvoyOf, name string) []string {
	page, err := envoy.Get(ctx, "/clusters?filter=outbound.80..%5E?"+name+".default")
	if err != nil {
		return nil
	}
	var all []string
	cluster := fmt.Sprintf("outbound|80||%s.%s.svc.cluster.local::", name, world.Functions)
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

// quantile is in milliseconds, by the nearest rank.
func quantile(took []time.Duration, q float64) float64 {
	if len(took) == 0 {
		return math.NaN()
	}
	slices.Sort(took)
	rank := int(math.Ceil(q*float64(len(took)))) - 1
	return float64(took[max(0, rank)]) / float64(time.Millisecond)
}
