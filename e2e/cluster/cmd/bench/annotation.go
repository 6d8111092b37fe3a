package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
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

// changed is what changes from one to the other and back, so that the gateway refuses requests or answers them.
type changed struct {
	host    string
	gateway netip.AddrPort
	change  func(ctx context.Context, refuse bool) error
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

// annotated is a function whose annotations change, in a part of the same name. With an input of which a request
// lacks one of the headers, the filter refuses the request; without one the request gets to the function.
func (b *bench) annotated(ctx context.Context, client kubernetes.Interface, name string) (*changed, error) {
	idle := map[string]string{"headstart.dev/scale-to-zero": "1h"}
	f := world.Function{Name: name, Part: name, Replicas: 1, Annotations: idle}
	if err := b.Deploy(ctx, f); err != nil {
		return nil, err
	}
	return b.changed(ctx, f.Host(), func(ctx context.Context, refuse bool) error {
		input, store := "null", "null"
		if refuse {
			input, store = strconv.Quote(testbed.Input), strconv.Quote(world.StoreName)
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"headstart.dev/input":%s,"headstart.dev/store":%s}}}`,
			input, store)
		_, err := client.CoreV1().Services(world.Functions).Patch(ctx, name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		return err
	})
}

// changed waits for the gateway to answer requests.
func (b *bench) changed(ctx context.Context, host string, change func(context.Context, bool) error) (*changed, error) {
	gateway, err := b.Gateway(ctx)
	if err != nil {
		return nil, err
	}
	c := &changed{host: host, gateway: gateway, change: change}
	return c, await(ctx, c.answers, http.StatusOK)
}

// answers is the status of a request without the key.
func (c *changed) answers(ctx context.Context) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.gateway.String()+"/healthz", nil)
	if err != nil {
		return 0, err
	}
	r.Host = c.host
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
func (c *changed) rounds(ctx context.Context) (took []time.Duration, err error) {
	for n := range 2 * annotationRounds {
		refuse, want := n%2 == 0, http.StatusOK
		if refuse {
			want = http.StatusBadRequest
		}
		began := time.Now()
		if err := c.change(ctx, refuse); err != nil {
			return nil, err
		}
		if err := await(ctx, c.answers, want); err != nil {
			return nil, fmt.Errorf("%s: %w", c.host, err)
		}
		took = append(took, time.Since(began))
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
