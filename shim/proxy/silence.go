package proxy

import (
	"errors"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// windowful is how much of a body the kernel of a node takes, in bytes, while nobody there
// reads: half of what Linux advertises to a new connection (net.ipv4.tcp_rmem).
const windowful = 32 << 10

// socket has f look at a connection's socket, unless the connection has none or has ended here.
func socket(c net.Conn, f func(fd int)) {
	if s, is := c.(syscall.Conn); is {
		if raw, err := s.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}

// unsent is how much was written to a connection that the other side has not acknowledged, in
// bytes; 0 if that is not known.
func unsent(c net.Conn) (n int) {
	socket(c, func(fd int) {
		if queued, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil {
			n = queued
		}
	})
	return n
}

// silence bounds how long what was sent on a connection may be unacknowledged (tcp(7),
// TCP_USER_TIMEOUT); the probes of an idle one count, too. The kernel's own bound is some
// fifteen minutes.
func silence(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) { err = bound(int(fd), peerSilence) })
	return errors.Join(failed, err)
}

// bound sets that time; 0 is the kernel's own. Linux counts the time, too, in which the other
// side has no room and says so: a body that waits for its function must not end for that.
func bound(fd int, d time.Duration) error {
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}
