package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/client"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Import brings the images of an OCI or Docker archive to the containerd at socket,
// unpacked, so that the first cold start does not pay for that. It returns their names.
func Import(ctx context.Context, socket string, archive io.Reader) (names []string, err error) {
	c, err := connect(ctx, socket, client.WithDefaultNamespace(nodeapi.ContainerdNamespace))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	images, err := c.Import(ctx, archive)
	if err != nil {
		return nil, fmt.Errorf("importing the archive: %w", err)
	}
	for _, i := range images {
		if err := client.NewImage(c, i).Unpack(ctx, Snapshotter); err != nil {
			return nil, fmt.Errorf("unpacking image %q: %w", i.Name, err)
		}
		names = append(names, i.Name)
	}
	return names, nil
}
