// Package ktls gives an established TLS connection to the kernel. Whoever has the socket then reads and writes plain
// bytes, in whatever process. crypto/tls makes the handshake.
//
// The kernel has to know how many records have passed in each direction, which crypto/tls does not tell. So the stream
// below a tls.Conn is followed from its first byte on: Prepare comes before the handshake, Kernel after it.
package ktls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/ktls/plaintext"
)

// Dial opens a stream without TLS.
type Dial = func(context.Context) (net.Conn, error)

// Prepare returns what one connection is to be made with, so that Kernel can do its part. Where this kernel has no TLS
// it returns what it was given.
func Prepare(dial Dial, config *tls.Config) (Dial, *tls.Config) {
	if config == nil || Probe() != nil {
		return dial, config
	}
	return follow(dial, config)
}

func follow(dial Dial, config *tls.Config) (Dial, *tls.Config) {
	f := &follower{}
	config = config.Clone()
	config.KeyLogWriter = keyLog{f}
	return func(ctx context.Context) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		*f = follower{Conn: conn}
		return f, nil
	}, config
}

// Kernel has the kernel do a connection's TLS, and returns its socket, a *plaintext.Conn. It returns conn itself if
// that is not possible: conn was not prepared, speaks TLS 1.2, or a record is on its way. Nobody else reads or writes
// meanwhile. After an error conn is closed. Closing conn does nothing to the socket that is returned.
func Kernel(conn net.Conn) (kept net.Conn, err error) {
	secured, f, s := prepared(conn)
	if f == nil {
		return conn, nil
	}
	defer func() {
		f.forget()
		if err != nil {
			_ = f.Conn.Close() // without close_notify: it may be the kernel that encrypts
		}
	}()
	socket, is := f.Conn.(*net.TCPConn)
	if !is {
		return conn, nil
	}
	if err := f.empty(secured); err != nil {
		return nil, err
	}
	taken, err := handOver(socket, s, &f.in, &f.out)
	if f.gone = taken; !taken {
		return conn, nil
	}
	if err != nil {
		return nil, fmt.Errorf("giving TLS to the kernel: %w", err)
	}
	if err := plaintext.Drain(socket); err != nil {
		return nil, fmt.Errorf("the connection has ended: %w", err)
	}
	return &plaintext.Conn{TCPConn: socket}, nil
}

// prepared returns the follower below a connection whose state is known; nil: it is not.
func prepared(conn net.Conn) (*tls.Conn, *follower, suite) {
	secured, is := conn.(*tls.Conn)
	if !is {
		return nil, nil, suite{}
	}
	f, is := secured.NetConn().(*follower)
	s, known := suites[secured.ConnectionState().CipherSuite]
	if !is || !known || f.in.secret == nil || f.out.secret == nil || !f.in.whole() || !f.out.whole() {
		return nil, nil, suite{}
	}
	return secured, f, s
}

// empty fails if tls.Conn has decrypted bytes that nobody has read.
func (f *follower) empty(secured *tls.Conn) error {
	f.closed = true
	defer func() { f.closed = false }()
	n, err := secured.Read(make([]byte, 1))
	switch {
	case n > 0:
		return errors.New("the server has said more than was read")
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the connection has ended: %w", err)
	}
	return nil
}

// handOver configures the kernel's TLS. taken: the connection cannot be used without it any more.
func handOver(socket *net.TCPConn, s suite, in, out *direction) (taken bool, err error) {
	read, err := s.info(in.secret, in.encrypted)
	if err != nil {
		return false, err
	}
	defer clear(read)
	written, err := s.info(out.secret, out.encrypted)
	if err != nil {
		return false, err
	}
	defer clear(written)
	raw, err := socket.SyscallConn()
	if err != nil {
		return false, err
	}
	control := raw.Control(func(fd uintptr) {
		// Without keys, the socket works as before.
		if err = set(fd, unix.IPPROTO_TCP, unix.TCP_ULP, []byte(plaintext.ULP)); err != nil {
			return
		}
		if err = set(fd, unix.SOL_TLS, optionWrite, written); err != nil {
			return
		}
		taken = true
		err = set(fd, unix.SOL_TLS, optionRead, read)
	})
	return taken, errors.Join(control, err)
}
