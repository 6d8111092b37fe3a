package runtime

import (
	"context"

	"github.com/containerd/log"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// awaitVolumes returns the mounts of a container's volumes when these are there. runc knows no mounts but those
// that a container is created with, so the wait comes before. A container that may start without its volumes has no
// lapse.
func (s *Service) awaitVolumes(ctx context.Context, id string, of spec.Facts) ([]*nodeapi.Mount, *lapse) {
	over := s.expectInput(id, of.Pod)
	defer s.forgetInput(id)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(over, cancel)()
	mounts, err := s.node.mounts(ctx, id, of.Pod)
	switch {
	case err == nil:
		return mounts, nil
	case of.Volumes.StartLate && ctx.Err() == nil:
		log.G(ctx).WithError(err).WithField("sandbox", id).Warn("a container starts without its volumes")
		return nil, nil
	}
	return nil, &lapse{volumesMissing, err}
}
