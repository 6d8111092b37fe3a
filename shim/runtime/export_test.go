package runtime

import (
	"context"
	"net"

	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
	"github.com/headstart-mesh/headstart/shim/runtime/gate"
)

// ListensBy has endpoints listen in another way, which needs no root.
func (s *Service) ListensBy(listen func(ctx context.Context, namespace string) (*net.TCPListener, error)) {
	s.listens = listen
}

// DialsBy has streams dialled in another way, which needs no root.
func (s *Service) DialsBy(dials func(namespace string) streams.Dial) { s.dials = dials }

// OpensBy has networks opened in another way, which needs no root.
func (s *Service) OpensBy(opens func(namespace string) error) { s.opens = opens }

// ClosesBy has networks closed in another way, which needs no root.
func (s *Service) ClosesBy(closes func(namespace string, r gate.Rules) error) { s.closes = closes }
