package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
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

// annotation measures how long after an annotation's change the gateway acts by it.
func (b *bench) annotation(ctx context.Context) (err error) {
	progress("from an annotation's change to its effect")
	client, err := b.kubernetes()
	if err != nil {
		return err
	}
	const name = "annotated"
	defer func() { err = errors.Join(err, b.Undeploy(context.WithoutCancel(ctx), name)) }()
	a, err := b.annotated(ctx, client, name)
	if err != nil {
		return err
	}
	took, err := a.rounds(ctx)
	if err != nil {
		return err
	}
	b.summary["annotation_to_effect_p99_ms"] = quantile(took, 0.99)
	b.summary["annotation_to_effect_p50_ms"] = quantile(took, 0.5)
	b.summary["annotation_to_effect_n"] = float64(len(took))
	return nil
}

// annotated is a function whose annotations change. With an input of which a request lacks one of the headers, the
// filter refuses the request; without one the request gets to the function.
type annotated struct {
	name    string
	gateway netip.AddrPort
	client  kubernetes.Interface
}

// kubernetes is a client that makes as many requests at a time as it is asked to.
func (b *bench) kubernetes() (kubernetes.Interface, error) {
	server, err := b.REST()
	if err != nil {
		return nil, err
	}
	server.QPS = -1
	return kubernetes.NewForConfig(server)
}

// annotated deploys one, whose part has the same name.
func (b *bench) annotated(ctx context.Context, client kubernetes.Interface, name string) (*annotated, error) {
	idle := map[string]string{"headstart.dev/scale-to-zero": "1h"}
	if err := b.Deploy(ctx, world.Function{Name: name, Part: name, Replicas: 1, Annotations: idle}); err != nil {
		return nil, err
	}
	gateway, err := b.Gateway(ctx)
	if err != nil {
		return nil, err
	}
	a := &annotated{name: name, gateway: gateway, client: client}
	return a, await(ctx, a.answers, http.StatusOK)
}

// answers is the status of a request without the key.
func (a *annotated) answers(ctx context.Context) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.gateway.String()+"/healthz", nil)
	if err != nil {
		return 0, err
	}
	r.Host = world.Function{Name: a.name}.Host()
	r.Header.Set("x-bucket", testbed.Bucket)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// rounds returns how long the changes took, each way.
func (a *annotated) rounds(ctx context.Context) (took []time.Duration, err error) {
	const patch = `{"metadata":{"annotations":{"headstart.dev/input":%s,"headstart.dev/store":%s}}}`
	services := a.client.CoreV1().Services(world.Functions)
	for range annotationRounds {
		for _, change := range []struct {
			patch string
			want  int
		}{
			{fmt.Sprintf(patch, `"`+testbed.Input+`"`, `"`+world.StoreName+`"`), http.StatusBadRequest},
			{fmt.Sprintf(patch, "null", "null"), http.StatusOK},
		} {
			began := time.Now()
			if _, err := services.Patch(ctx, a.name, types.MergePatchType, []byte(change.patch),
				metav1.PatchOptions{}); err != nil {
				return nil, err
			}
			if err := await(ctx, a.answers, change.want); err != nil {
				return nil, err
			}
			took = append(took, time.Since(began))
		}
	}
	return took, nil
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
