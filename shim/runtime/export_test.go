package runtime

import (
	"context"
	"net"
)

// ListensBy has endpoints listen in another way, which needs no root.
func (s *Service) ListensBy(listen func(ctx context.Context, namespace string) (*net.TCPListener, error)) {
	s.listens = listen
}
