package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// crowdServices are three times as many as the functions that a namespace may have.
	crowdServices, crowdNamespace = 3000, "crowd"
	// crowdBeside is the part of what the others are in another namespace.
	crowdBeside = "beside"
	// crowdAtOnce are created side by side.
	crowdAtOnce = 16
	// crowdCold functions of another namespace get one cold request each meanwhile.
	crowdCold = 20
	// crowdColdEvery spreads the cold requests: each starts a pod.
	crowdColdEvery = time.Second
	// crowdRequest is more than a cold request takes.
	crowdRequest = 30 * time.Second
	// crowdEnd is how long Kubernetes may take to remove the Services with their endpoints.
	crowdEnd = 5 * time.Minute
)

// crowd measures what others notice while one namespace makes thousands of annotated Services: how long annotations
// take until they take effect, while the Services are created and afterwards, and how many cold requests fail.
func (b *bench) crowd(ctx context.Context) (err error) {
	progress(fmt.Sprintf("%d annotated Services in one namespace", crowdServices))
	client, err := b.kubernetes()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.crowdEnds(context.WithoutCancel(ctx), client)) }()
	a, err := b.annotated(ctx, client, crowdBeside)
	if err != nil {
		return err
	}
	istio, err := b.routed(ctx, client)
	if err != nil {
		return err
	}
	var cold []world.Function
	for n := range crowdCold {
		cold = append(cold, world.Function{Name: fmt.Sprintf("%s-%d", crowdBeside, n), Part: crowdBeside,
			Annotations: map[string]string{"headstart.dev/scale-to-zero": idleWindow}})
	}
	if err := b.Deploy(ctx, cold...); err != nil {
		return err
	}

	g, ctx := errgroup.WithContext(ctx)
	created := make(chan struct{})
	g.Go(func() error { defer close(created); return crowdBegins(ctx, client) })
	failed := 0
	g.Go(func() (err error) { failed, err = b.coldOnes(ctx, cold); return err })
	var annotation, route []time.Duration
	g.Go(func() (err error) { annotation, err = a.until(ctx, created); return err })
	g.Go(func() (err error) { route, err = istio.until(ctx, created); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	b.summary["others_annotation_to_effect_p99_ms"] = quantile(annotation, 0.99)
	b.summary["others_annotation_to_effect_n"] = float64(len(annotation))
	b.summary["others_route_to_effect_p99_ms"] = quantile(route, 0.99)
	b.summary["others_route_to_effect_n"] = float64(len(route))
	b.summary["others_cold_failed"], b.summary["others_cold_n"] = float64(failed), crowdCold
	return nil
}

// routed is a VirtualService's change, of which Headstart knows nothing: what istiod takes for any change.
func (b *bench) routed(ctx context.Context, client kubernetes.Interface) (*changed, error) {
	const name, host = "crowd-route", "crowd-route.example.com"
	const manifest = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %s, namespace: %s, labels: {part: %s}}
spec: {hosts: [%s], gateways: [default/functions], http: [{directResponse: {status: 200}}]}
`
	if err := b.Apply(ctx, fmt.Sprintf(manifest, name, world.Functions, crowdBeside, host)); err != nil {
		return nil, err
	}
	path := "/apis/networking.istio.io/v1/namespaces/" + world.Functions + "/virtualservices/" + name
	return b.changed(ctx, host, func(ctx context.Context, refuse bool) error {
		status := http.StatusOK
		if refuse {
			status = http.StatusBadRequest
		}
		patch := fmt.Appendf(nil, `{"spec":{"http":[{"directResponse":{"status":%d}}]}}`, status)
		return client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body(patch).Do(ctx).Error()
	})
}

// until changes round after round, and once more after created is closed.
func (c *changed) until(ctx context.Context, created <-chan struct{}) (took []time.Duration, err error) {
	for after := false; !after; {
		select {
		case <-created:
			after = true
		default:
		}
		some, err := c.rounds(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, some...)
	}
	return took, nil
}

// crowdBegins creates the namespace with all its Services.
func crowdBegins(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: crowdNamespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(crowdAtOnce)
	for n := range crowdServices {
		name := fmt.Sprintf("crowd-%d", n)
		g.Go(func() error {
			_, err := client.CoreV1().Services(crowdNamespace).Create(ctx, &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: name,
					Annotations: map[string]string{"headstart.dev/scale-to-zero": idleWindow}},
				Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, // the cluster may have fewer addresses
					Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
			}, metav1.CreateOptions{})
			return err
		})
	}
	return g.Wait()
}

// coldOnes sends each function its first request, and returns how many failed.
func (b *bench) coldOnes(ctx context.Context, functions []world.Function) (failed int, err error) {
	gateway, err := b.Gateway(ctx)
	if err != nil {
		return 0, err
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	defer asked.Wait()
	for _, f := range functions {
		asked.Go(func() {
			if err := ask(ctx, "http://"+gateway.String()+"/healthz", f.Host()); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed++
				b.notes = append(b.notes, fmt.Sprintf("cold request to %s: %v", f.Name, err))
			}
		})
		if err := pause(ctx, crowdColdEvery); err != nil {
			return 0, err
		}
	}
	asked.Wait()
	return failed, nil
}

func ask(ctx context.Context, url, host string) error {
	ctx, cancel := context.WithTimeout(ctx, crowdRequest)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// crowdEnds removes all of it, and waits until it is gone.
func (b *bench) crowdEnds(ctx context.Context, client kubernetes.Interface) error {
	gone := func(ctx context.Context) error {
		err := client.CoreV1().Namespaces().Delete(ctx, crowdNamespace, metav1.DeleteOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil, apierrors.IsConflict(err): // it is ending
			return errors.New("the namespace is still there")
		}
		return err
	}
	return errors.Join(b.Undeploy(ctx, crowdBeside), testbed.Poll(ctx, crowdEnd, gone))
}
