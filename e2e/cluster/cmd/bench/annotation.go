package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	// annotationRounds changes each way.
	annotationRounds = 15
	effectPoll       = 2 * time.Millisecond
	effectTimeout    = time.Minute
)

// annotation measures how long after an annotation's change the gateway acts by it: with
// an input of which a request lacks one of the headers, the filter refuses it; without one it gets
// to the function.
func (b *bench) annotation(ctx context.Context) error {
	progress("from an annotation's change to its effect")
	const name = "annotated"
	if err := b.Deploy(ctx, world.Function{Name: name, Replicas: 1, Annotations: map[string]string{"headstart.dev/scale-to-zero": "1h"}}); err != nil {
		return err
	}
	server, err := b.REST()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(server)
	if err != nil {
		return err
	}
	gateway, err := b.Gateway(ctx)
	if err != nil {
		return err
	}
	answers := func(ctx context.Context) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gateway.String()+"/healthz", nil)
		if err != nil {
			return 0, err
		}
		r.Host = world.Function{Name: name}.Host()
		r.Header.Set("x-bucket", testbed.Bucket) // and no key
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	if err := await(ctx, answers, http.StatusOK); err != nil {
		return err
	}
	var took []time.Duration
	for range annotationRounds {
		for _, change := range []struct {
			patch string
			want  int
		}{
			{`{"metadata":{"annotations":{"headstart.dev/input":"` + testbed.Input + `","headstart.dev/store":"` + world.StoreName + `"}}}`, http.StatusBadRequest},
			{`{"metadata":{"annotations":{"headstart.dev/input":null,"headstart.dev/store":null}}}`, http.StatusOK},
		} {
			if _, err := client.CoreV1().Services(world.Functions).Patch(ctx, name, types.MergePatchType, []byte(change.patch), metav1.PatchOptions{}); err != nil {
				return err
			}
			began := time.Now()
			if err := await(ctx, answers, change.want); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
	}
	b.summary["annotation_to_effect_p99_ms"], b.summary["annotation_to_effect_p50_ms"] = quantile(took, 0.99), quantile(took, 0.5)
	b.summary["annotation_to_effect_n"] = float64(len(took))
	return nil
}

func await(ctx context.Context, status func(context.Context) (int, error), want int) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	tick := time.NewTicker(effectPoll)
	defer tick.Stop()
	for {
		got, err := status(ctx)
		if err == nil && got == want {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("asking the gateway: %w", err)
			}
			return fmt.Errorf("the gateway answers %d, want %d", got, want)
		case <-tick.C:
		}
	}
}
