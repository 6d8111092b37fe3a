package runtime

import (
	"context"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// conversation is a sandbox's with the daemon about streams, for as long as it has containers that were told of it.
type conversation struct {
	shim       *streams.Shim
	stop       context.CancelFunc
	containers map[string]bool
}

// converse has the daemon dial in the network of a container that is described with streams, and join streams there; nil for
// another container.
func (s *Service) converse(id string, b *bundle, d *nodeapi.DescribeResponse) *streams.Shim {
	if !d.GetStreams() {
		return nil
	}
	dial := streams.HostNetwork
	if b.facts.Network != "" && !onHostNetwork(b.facts.Network) {
		dial = s.dials(b.facts.Network)
	}
	sandbox := b.facts.SandboxID(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conversations[sandbox]
	if c == nil {
		keeping, stop := context.WithCancel(context.Background())
		c = &conversation{shim: streams.NewShim(sandbox, dial), stop: stop, containers: map[string]bool{}}
		s.conversations[sandbox] = c
		s.background.Go(func() { c.shim.Keep(keeping, streams.Path(s.node.Socket)) })
	}
	c.containers[id] = true
	return c.shim
}

// leaveConversation ends the conversation whose last container is gone, in the background; the caller holds mu.
func (s *Service) leaveConversation(container string) {
	for sandbox, c := range s.conversations {
		delete(c.containers, container)
		if len(c.containers) == 0 {
			delete(s.conversations, sandbox)
			c.stop()
		}
	}
}
