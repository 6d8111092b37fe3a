package streams

import (
	"net"
	"time"
)

// Hasten has Keep look for a daemon at another pace. undo takes that back.
func Hasten(pace time.Duration) (undo func()) {
	before := retry
	retry = pace
	return func() { retry = before }
}

// Join joins two streams that are no sockets.
func (s *Shim) Join(one, other interface {
	net.Conn
	CloseWrite() error
}) {
	s.join(&pair{one, other}, nil)
}
