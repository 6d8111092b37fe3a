package containerd

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// pollInterval is how often a restarting containerd is asked for.
	pollInterval = 100 * time.Millisecond
	// watchGrace is how long a distribution that watches its configuration may take until
	// it restarts containerd: k0s waits 3 s for further changes.
	watchGrace = 20 * time.Second
	// callTimeout bounds one question to containerd.
	callTimeout = 5 * time.Second
)

// Restart is install.Runtime's: it ends the process was, so that whoever supervises it
// starts the next, and waits for that one to answer. Containers live on in their shims.
func (c *Containerd) Restart(ctx context.Context, was string, watched bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.RestartTimeout)
	defer cancel()
	if watched {
		grace, done := context.WithTimeout(ctx, watchGrace)
		err := c.await(grace, was)
		done()
		if err == nil {
			return nil
		}
	}
	p, err := c.process(ctx)
	if err == nil && p.id == was {
		if err := c.end(p); err != nil {
			return err
		}
	}
	if err := c.await(ctx, was); err != nil {
		return fmt.Errorf("%w; look at containerd's log (journalctl -u containerd, or k3s, rke2-agent, k0sworker, snap.microk8s.daemon-containerd) "+
			"and start it if nothing does (systemctl start containerd); --restart-timeout gives it more time, --restart=never leaves it to you", err)
	}
	return nil
}

// await returns when another process than was answers on the socket, as the kubelet would
// ask it.
func (c *Containerd) await(ctx context.Context, was string) error {
	started := time.Now()
	last := fmt.Errorf("it has not ended")
	for {
		p, err := c.process(ctx)
		if err == nil && p.id != was {
			if err = c.answers(ctx); err == nil {
				return nil
			}
		}
		if ctx.Err() == nil && (err != nil || p.id != was) {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no new containerd after %v: %w", time.Since(started).Round(time.Second), last)
		case <-time.After(pollInterval):
		}
	}
}

// answers fails unless containerd's CRI plugin is up.
func (c *Containerd) answers(ctx context.Context) error {
	return c.call(ctx, func(ctx context.Context, r runtimeapi.RuntimeServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		_, err := r.Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
}
