package ingress

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// silence bounds how long what was sent on a connection may be unacknowledged (tcp(7),
// TCP_USER_TIMEOUT); the probes of an idle one count, too. The kernel's own bound is some
// fifteen minutes.
func silence(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerSilence.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
