package streams

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// backlog is how many connections to a listener may wait. All but the program's are strangers'.
	backlog = 16
	// acceptTimeout bounds the wait for a program's connection, which is there at once if the loopback is not stopped.
	acceptTimeout = 200 * time.Millisecond
)

var errNotNew = errors.New("a program's socket cannot be connected: it is bound or connected, or of another family")

// Listener is a socket on a sandbox's loopback that the shim connects programs' sockets to. Its methods are called one by
// one.
type Listener struct {
	fd int // Go's poller knows nothing of it, and is not woken by each connection
	at netip.AddrPort
}

// Listen makes a listener for programs that connect to an address.
type Listen func(to netip.Addr) (*Listener, error)

// ListenIn returns what listens on the loopback of a network namespace, by the path of that.
func ListenIn(namespace string) Listen {
	return func(to netip.Addr) (l *Listener, err error) {
		if err := nsthread.Run(namespace, func() (err error) { l, err = listen(to); return err }); err != nil {
			return nil, fmt.Errorf("listening on the sandbox's loopback: %w", err)
		}
		return l, nil
	}
}

// listen listens in the thread's network, and connects once: the first program does not wait for the shim's pages.
func listen(to netip.Addr) (_ *Listener, err error) {
	const kind = unix.SOCK_STREAM | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK
	family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if to.Is6() {
		family, at = unix.AF_INET6, &unix.SockaddrInet6{Addr: netip.IPv6Loopback().As16()}
	}
	l := &Listener{}
	if l.fd, err = unix.Socket(family, kind, 0); err != nil {
		return nil, err
	}
	var own unix.Sockaddr
	err = unix.SetsockoptInt(l.fd, unix.IPPROTO_IP, unix.IP_FREEBIND, 1) // the loopback may be down yet
	if err = errors.Join(err, unix.Bind(l.fd, at), unix.Listen(l.fd, backlog)); err == nil {
		own, err = unix.Getsockname(l.fd)
	}
	if err != nil {
		l.close()
		return nil, err
	}
	l.at = addressOf(own)
	if socket, err := unix.Socket(family, kind, 0); err == nil {
		if f, err := l.connect(socket); err == nil {
			_ = f.Close()
		}
		_ = unix.Close(socket)
	}
	return l, nil
}

func (l *Listener) close() {
	_ = unix.Close(l.fd)
	l.fd = -1
}

// refuse closes the connections of strangers, which are all that wait.
func (l *Listener) refuse() {
	for {
		fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
		if err != nil {
			return
		}
		_ = unix.Close(fd)
	}
}

// connect connects a program's socket, and returns the other end. The program's own connect(2), which is still to come,
// is told by the kernel that the connection is there, as often as signals interrupt it. If there is none, the socket is
// not connected.
func (l *Listener) connect(socket int) (*os.File, error) {
	to, err := l.address(socket)
	if err != nil {
		return nil, err
	}
	l.refuse() // they may fill the queue
	// It is a connect(2) that does not wait, whatever flags the program has given its socket, or gives it meanwhile.
	if err := unix.Sendto(socket, nil, unix.MSG_FASTOPEN|unix.MSG_DONTWAIT, to); err != unix.EINPROGRESS {
		return nil, errors.Join(errNotNew, err) // without an error another thread of the program has connected it
	}
	f, err := l.accept(socket)
	if err != nil {
		disconnect(socket)
	}
	return f, err
}

// address is the listener's for a socket that is neither bound nor connected.
func (l *Listener) address(socket int) (unix.Sockaddr, error) {
	own, err := unix.Getsockname(socket)
	if err != nil {
		return nil, fmt.Errorf("looking at a program's socket: %w", err)
	}
	at, port := l.at.Addr(), int(l.at.Port())
	switch own := own.(type) {
	case *unix.SockaddrInet4:
		if own.Port == 0 && at.Is4() {
			return &unix.SockaddrInet4{Addr: at.As4(), Port: port}, nil
		}
	case *unix.SockaddrInet6:
		if own.Port == 0 {
			return &unix.SockaddrInet6{Addr: at.As16(), Port: port}, nil
		}
	}
	return nil, errNotNew
}

// accept returns the other end of a socket's connection. Others of the sandbox's network connect as well: theirs is closed.
func (l *Listener) accept(socket int) (*os.File, error) {
	own, err := unix.Getsockname(socket)
	if err != nil {
		return nil, fmt.Errorf("looking at a program's socket: %w", err)
	}
	for end := time.Now().Add(acceptTimeout); time.Now().Before(end); {
		fd, from, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC)
		switch {
		case err == nil && addressOf(from) == addressOf(own):
			return os.NewFile(uintptr(fd), "program"), nil
		case err == nil:
			_ = unix.Close(fd)
		case err == unix.EAGAIN:
			ready := []unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}
			_, _ = unix.Poll(ready, int(acceptTimeout.Milliseconds())) // Accept4 says how it is
		case err != unix.EINTR && err != unix.ECONNABORTED:
			return nil, fmt.Errorf("taking a program's connection: %w", err)
		}
	}
	return nil, errors.New("the sandbox's loopback does not pass a program's connection on")
}

// disconnect has a socket be connected again: it only keeps its port.
func disconnect(socket int) {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, _ = unix.Syscall(unix.SYS_CONNECT, uintptr(socket), uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(none))
	_, _ = unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ERROR) // which it is for the kernel, and is the program's no more
}

func addressOf(a unix.Sockaddr) netip.AddrPort {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return canonical(netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)))
	}
	return netip.AddrPort{}
}
