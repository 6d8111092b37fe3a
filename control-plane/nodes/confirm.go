package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Confirm returns when the own gateway of each node that is connected has all that its daemon was
// told before the call, or has refused it. A gateway that is away is waited for, a node is not. It
// returns an error when ctx ends.
func (s *Server) Confirm(ctx context.Context) error {
	id := rand.Int64() // an answer to an earlier control plane's question is none to this one's
	asked := map[*stream]chan struct{}{}
	s.mu.Lock()
	for _, of := range s.joined {
		for _, st := range of {
			asked[st] = make(chan struct{})
			st.confirms[id] = asked[st]
			// A stream that is too slow is cut off, and its end is the answer.
			_ = st.send(&nodeapi.ControlMessage{
				Kind: &nodeapi.ControlMessage_Confirm{Confirm: &nodeapi.Confirm{Id: id}},
			})
		}
	}
	s.mu.Unlock()
	defer func() {
		for st := range asked {
			s.confirmed(st, id) // or it would be kept where no answer comes
		}
	}()
	for st, confirmed := range asked {
		select {
		case <-confirmed:
		case <-st.gone:
		case <-ctx.Done():
			return fmt.Errorf(
				"waiting for the gateway of %s to take its configuration: %w", st.node, context.Cause(ctx),
			)
		}
	}
	return nil
}

// confirmed takes a daemon's word.
func (s *Server) confirmed(st *stream, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits := st.confirms[id]; waits != nil {
		close(waits)
		delete(st.confirms, id)
	}
}
