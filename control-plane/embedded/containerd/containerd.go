// Package containerd configures a private containerd and leaves nothing of it behind,
// neither in good order nor after a kill.
package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/containerd/containerd/v2/client"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

// Snapshotter is where root file systems come from: containerd's own default.
const Snapshotter = "overlayfs"

// Paths are where one containerd keeps its things. All are absolute.
type Paths struct {
	Root   string // content and snapshots, which outlive a restart
	State  string // running tasks
	Socket string // gRPC; "<Socket>.ttrpc" is made beside it
}

// Config returns the configuration file of a containerd 1.6 (version 2 of the format).
// It needs no cni and no opt directory: the daemon calls CNI itself, and containerd's
// opt plugin would create /opt/containerd on the user's machine.
func Config(p Paths) []byte {
	return fmt.Appendf(nil, `version = 2
root = %s
state = %s
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]

[grpc]
  address = %s
`, quote(p.Root), quote(p.State), quote(p.Socket))
}

// quote makes a TOML basic string; JSON strings are a subset (toml.io v1.0.0, "String").
func quote(s string) string {
	b, _ := json.Marshal(s) // cannot fail on a string
	return string(b)
}

// WaitReady returns when the containerd at socket serves, or ctx ends.
func WaitReady(ctx context.Context, socket string) error {
	// This is quicker than gRPC's own waiting, whose first retry comes after a second.
	if err := process.Poll(func(ctx context.Context) error { return dial(ctx, socket) })(ctx); err != nil {
		return fmt.Errorf("waiting for containerd at %s: %w", socket, err)
	}
	c, err := connect(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	serving, err := c.IsServing(ctx)
	if err == nil && !serving {
		err = errors.New("it says that it does not serve")
	}
	if err != nil {
		return fmt.Errorf("asking containerd at %s for its health: %w", socket, err)
	}
	return nil
}

// connect returns a client, or why there is nobody to talk to. Where containerd's own dialer
// would wait for a socket that goes away, even after Close, this one's calls fail.
func connect(ctx context.Context, socket string, more ...client.Opt) (*client.Client, error) {
	if err := dial(ctx, socket); err != nil {
		return nil, fmt.Errorf("connecting to containerd: %w", err)
	}
	unix := grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	})
	c, err := client.New(socket, append(more, client.WithExtraDialOpts([]grpc.DialOption{unix}))...)
	if err != nil {
		return nil, fmt.Errorf("connecting to containerd: %w", err)
	}
	return c, nil
}

// dial tells whether somebody listens.
func dial(ctx context.Context, socket string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return conn.Close()
}
