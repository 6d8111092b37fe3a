package runtime

import (
	"context"

	"github.com/containerd/log"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// closeNetwork has nothing leave a container's sandbox but answers, if the daemon has described it so, and tells the daemon.
func (s *Service) closeNetwork(ctx context.Context, id string, b *bundle, d *nodeapi.DescribeResponse) {
	if !d.GetClosed() {
		return
	}
	why := s.closeBundle(b)
	if err := s.node.closed(ctx, id, b.facts.Pod, why); err != nil {
		// Then it takes no request before its turn.
		log.G(ctx).WithError(err).WithField("sandbox", id).Warn("the daemon was not told that a sandbox is closed")
	}
}

// closeBundle says why a container's sandbox cannot be closed; empty: it is.
func (s *Service) closeBundle(b *bundle) (why string) {
	if onHostNetwork(b.facts.Network) {
		return spec.HostNetwork
	}
	config, why, err := spec.Closed(b.config)
	if why == "" && err == nil {
		if err = b.write(config); err == nil {
			b.config = config
			err = s.closes(b.facts.Network)
		}
	}
	if err != nil {
		return err.Error()
	}
	return why
}
