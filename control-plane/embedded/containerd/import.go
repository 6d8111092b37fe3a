package containerd

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/archive/compression"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Import brings the images of an OCI or Docker archive, which may be compressed, to the containerd
// at socket, unpacked, so that the first cold start does not pay for that. It returns their names.
func Import(ctx context.Context, socket string, archive io.Reader) (names []string, err error) {
	c, err := connect(ctx, socket, client.WithDefaultNamespace(nodeapi.ContainerdNamespace))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	plain, err := compression.DecompressStream(archive)
	if err != nil {
		return nil, fmt.Errorf("decompressing the archive: %w", err)
	}
	defer plain.Close()
	brought, err := c.Import(ctx, plain)
	switch {
	case errors.Is(err, tar.ErrHeader):
		return nil, errors.New("this is not an archive of images, such as `docker save` writes it")
	case errors.Is(err, images.ErrEmptyWalk):
		return nil, fmt.Errorf(
			"the archive has no image for this machine (%s); build the image for it", runtime.GOOS+"/"+runtime.GOARCH,
		)
	case err != nil:
		return nil, fmt.Errorf("importing the archive: %w", err)
	case len(brought) == 0:
		return nil, errors.New("no image of the archive has a name; save the image by its name and tag")
	}
	for _, i := range brought {
		if err := client.NewImage(c, i).Unpack(ctx, Snapshotter); err != nil {
			return nil, fmt.Errorf("unpacking image %q: %w", i.Name, err)
		}
		names = append(names, i.Name)
	}
	return names, nil
}
