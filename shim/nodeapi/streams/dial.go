package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

// dialLimit bounds a dial, whatever the daemon asks for: a thread waits for it.
const dialLimit = 30 * time.Second

// Mark is on what shims send from a sandbox (SO_MARK, socket(7)), by which it passes where the sandbox's programs do not. These may not set it.
const Mark = 0x68647374

// Dial connects to an address.
type Dial func(ctx context.Context, at netip.AddrPort) (net.Conn, error)

// In returns what dials in a network namespace, by the path of that.
func In(namespace string) Dial {
	return func(ctx context.Context, at netip.AddrPort) (conn net.Conn, err error) {
		err = nsthread.Run(namespace, func() error {
			// An address without a name is dialled by the goroutine, and so the thread, that asks.
			conn, err = (&net.Dialer{Control: marked}).DialContext(ctx, "tcp", at.String())
			return err
		})
		return conn, err
	}
}

func marked(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, Mark) })
	return errors.Join(err, failed)
}

// HostNetwork dials nowhere: from the node's own network the daemon would get to what only the node may get to.
func HostNetwork(context.Context, netip.AddrPort) (net.Conn, error) {
	return nil, errors.New("the sandbox has no network namespace of its own")
}

// parseAddress allows what lies outside of the sandbox, against mistakes: a daemon that is broken into can connect the
// socket again, to any address of the sandbox's network.
func parseAddress(s string) (netip.AddrPort, error) {
	at, err := netip.ParseAddrPort(s)
	if err != nil {
		return at, errors.New("not an address with a port") // what came is not repeated
	}
	at = canonical(at)
	a := at.Addr()
	switch {
	case a.IsLoopback(), a.IsUnspecified(), a.IsMulticast(), a.IsLinkLocalUnicast(), a.Zone() != "",
		a.Is4() && (a.As4()[0] == 0 || a.As4() == [4]byte{255, 255, 255, 255}), at.Port() == 0:
		return at, fmt.Errorf("%s is not the address of another host", at)
	}
	return at, nil
}

// canonical is the one form of an address that has two, as one of IPv4 and within IPv6.
func canonical(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// failure says of an error what the daemon tells errors by.
func failure(err error) message {
	m := message{Error: err.Error()}
	var number syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &number):
		m.Error, m.Errno = number.Error(), unix.ErrnoName(number)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		m.Errno = unix.ErrnoName(unix.ETIMEDOUT)
	}
	return m
}

// errnoLimit is above all numbers of the system's errors.
const errnoLimit = 256

// err is what failure was told.
func (m message) err() error {
	if m.Error == "" {
		return nil
	}
	for number := syscall.Errno(1); m.Errno != "" && number < errnoLimit; number++ {
		if unix.ErrnoName(number) == m.Errno {
			return number
		}
	}
	return errors.New(m.Error)
}
