package endpoints

import (
	"context"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// Listen listens on the loopback of a network namespace, by the path of that, on a port that the kernel chooses.
func Listen(ctx context.Context, namespace string) (l *net.TCPListener, err error) {
	// The loopback of a new namespace may still be down, and have no address.
	early := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
		if failed != nil {
			return failed
		}
		return err
	}}
	err = nsthread.Run(namespace, func() error {
		on, err := early.Listen(ctx, "tcp4", "127.0.0.1:0")
		if err == nil {
			l = on.(*net.TCPListener)
		}
		return err
	})
	return l, err
}
