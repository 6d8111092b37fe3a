package world

import (
	"context"
	"os"

	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/e2e/cluster/cloud"
)

// Attach takes a world that somebody else has opened and looks after, as it is, with
// Headstart installed. Do not Close it.
func Attach(ctx context.Context, c Config) (*World, error) {
	if err := os.MkdirAll(c.WorkDir, 0o755); err != nil {
		return nil, err
	}
	running, err := cluster.Attach(ctx, cluster.DefaultDir)
	if err != nil {
		return nil, err
	}
	w := &World{Cluster: running, config: c}
	secret, err := w.storedSecret(ctx)
	if err != nil {
		return nil, err
	}
	w.Cloud, err = cloud.Take(ctx, secret)
	return w, err
}
