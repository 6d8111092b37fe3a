package runtime

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// awaitVolumes returns the mounts of a container's volumes when these are there. runc knows no mounts but those
// that a container is created with, so the wait comes before. A container that may start without its volumes has no
// lapse.
func (s *Service) awaitVolumes(ctx context.Context, id string, of spec.Facts) ([]*nodeapi.Mount, *lapse) {
	s.expectInput(id, of.Pod)
	defer s.forgetInput(id)
	s.mu.Lock()
	over := s.jobs[id].over
	s.mu.Unlock()
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

// withoutVolumes says why a container is not to be created, as its volumes have no way into it; nil if they have.
func withoutVolumes(ctx context.Context, id string, d *nodeapi.DescribeResponse, missed *lapse) error {
	why := "the node's daemon does not know it"
	switch {
	case missed != nil:
		log.G(ctx).WithError(missed.cause).WithField("sandbox", id).WithField("reason", missed.reason).Error(
			"a container is not made without its volumes",
		)
		if why = missed.reason; why == volumesMissing {
			why = whyNot(missed.cause)
		}
	case d != nil:
		return nil
	}
	return fmt.Errorf("%w: the container's volumes: %s", errdefs.ErrFailedPrecondition, why)
}
