package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// drainTime is how long the requests that are under way have before the daemons are asked to
// end: as long as a daemon gives those that its functions work on.
const drainTime = 5 * time.Second

// endTime is how long the daemons and the control plane have to end after that, all together: then
// they are killed.
const endTime = 15 * time.Second

// activeRequests is Envoy's statistic of the requests that a gateway has; the daemon names its listener
// gateway.
const activeRequests = "http.gateway.downstream_rq_active"

// Drain lets the requests that are under way end, before Stop. First the gateways take no new
// connections, until they have answered all requests, also those whose functions are starting, or
// 5 s have passed. Then the daemons answer what waits in them, and give the rest some seconds more.
// When ctx ends, requests are cut off at once.
func (p *Platform) Drain(ctx context.Context) {
	p.drainGateways(ctx)
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	p.daemons.Stop(ctx)
}

func (p *Platform) drainGateways(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	var g errgroup.Group
	for _, n := range p.network.Nodes() {
		g.Go(func() error {
			// A gateway that does not answer is ended with its requests.
			_ = drainGateway(ctx, filepath.Join(p.run(n.Name), adminSocket))
			return nil
		})
	}
	_ = g.Wait()
}

// drainGateway has an Envoy take no new connections, close those that it has after their next
// answer, and waits until it has no request.
func drainGateway(ctx context.Context, socket string) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	ask := func(ctx context.Context, method, path string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, nil)
		if err != nil {
			return "", err
		}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10)) // of one line
		if err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		return strings.TrimSpace(string(text)), errors.Join(err, answer.Body.Close())
	}
	// The first has answers say that their connection ends; the second closes the listener.
	for _, path := range []string{"/healthcheck/fail", "/drain_listeners"} {
		if _, err := ask(ctx, http.MethodPost, path); err != nil {
			return fmt.Errorf("draining the gateway: %w", err)
		}
	}
	return process.Poll(func(ctx context.Context) error {
		requests, err := ask(ctx, http.MethodGet, "/stats?filter=^"+activeRequests+"$")
		if err == nil && requests != activeRequests+": 0" {
			err = errors.New(requests)
		}
		return err
	})(ctx)
}
