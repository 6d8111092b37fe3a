package ingress

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// windowful is how much of a body the kernel of a node takes, in bytes, while nobody there
// reads: half of what Linux advertises to a new connection (net.ipv4.tcp_rmem).
const windowful = 32 << 10

// unsent is how much was written to a connection that the other side has not acknowledged, in
// bytes; 0 if that is not known.
func unsent(c syscall.Conn) (n int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // of a connection that has ended already
		n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	})
	if err != nil {
		return 0
	}
	return n
}

// silence bounds how long what was sent on a connection may be unacknowledged (tcp(7),
// TCP_USER_TIMEOUT); the probes of an idle one count, too. The kernel's own bound is some
// fifteen minutes.
func silence(_, _ string, c syscall.RawConn) error { return bound(c, peerSilence) }

// bound sets that time; 0 is the kernel's own. Linux counts the time, too, in which the other
// side has no room and says so: a body that waits for its function must not end for that.
func bound(c syscall.RawConn, d time.Duration) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
