// Package plaintext reads and ends a connection whose TLS the kernel does. The data needs nothing of that, but
// read(2) and splice(2) fail at a record that is no data, such as a session ticket.
package plaintext

import (
	"errors"
	"fmt"
	"io"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ULP is the kernel's name of its TLS: TCP's upper layer protocol.
const ULP = "tls"

// The control messages with a record's type: <linux/tls.h>.
const (
	setRecordType = 1
	getRecordType = 2
)

// drainedMost bounds how many records are drained. Servers send two tickets as a rule.
const drainedMost = 64

// recordMost is the longest content of a record, in bytes (RFC 8446, section 5.1).
const recordMost = 16 << 10

// closeNotify is the alert that ends a direction.
var closeNotify = []byte{1, alertCloseNotify}

// Conn is a connection whose TLS the kernel does. One goroutine reads at a time.
type Conn struct {
	*net.TCPConn
	control control
	ended   error // why nothing more is read
}

// Of returns what a connection is to be read and ended by: itself, unless the kernel does TLS on it.
func Of(conn net.Conn) net.Conn {
	tcp, is := conn.(*net.TCPConn)
	if !is {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn // it is closed
	}
	var name string
	controlled := raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_ULP)
	})
	if controlled != nil || err != nil || name != ULP {
		return conn
	}
	return &Conn{TCPConn: tcp}
}

// Read reads data. Tickets are skipped. The error is io.EOF after the server's close_notify or its FIN, and is
// ErrRekeyed when the server changes its keys.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 || c.ended != nil {
		return 0, c.ended
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	for {
		var n int
		var kind byte
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, kind, failed = receive(int(fd), b, 0)
			return !errors.Is(failed, unix.EAGAIN)
		})
		if err != nil {
			return 0, err // its deadline has passed, or it is closed
		}
		if c.ended = c.see(kind, b[:n], failed); c.ended != nil {
			return 0, c.ended
		}
		if kind == typeData && n > 0 {
			return n, nil
		}
	}
}

// see returns why nothing more is to be read after what was received.
func (c *Conn) see(kind byte, b []byte, failed error) error {
	switch {
	case errors.Is(failed, unix.EKEYEXPIRED): // it has been noticed by somebody who read before
		return ErrRekeyed
	case failed != nil:
		return fmt.Errorf("reading a TLS record: %w", failed)
	case kind == 0 && len(b) == 0:
		return io.EOF
	}
	return c.control.note(kind, b)
}

// WriteTo implements io.WriterTo. It is not TCPConn's, which would splice.
func (c *Conn) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{c}) }

// CloseWrite ends this side of the connection, for TLS and for TCP.
func (c *Conn) CloseWrite() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		_, failed = unix.SendmsgN(int(fd), closeNotify, recordType(typeAlert), nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("ending TLS: %w", err)
	}
	return c.TCPConn.CloseWrite()
}

// Drain takes the tickets that have arrived, so that a program can read the connection that knows nothing of them. It
// does not wait. An error says that the connection has ended; data stays.
func Drain(conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var c Conn
	var ended error
	err = raw.Control(func(fd uintptr) {
		for range drainedMost {
			_, kind, failed := receive(int(fd), make([]byte, 1), unix.MSG_PEEK)
			if kind == typeData || errors.Is(failed, unix.EAGAIN) {
				return
			}
			n, b := 0, []byte(nil)
			if failed == nil {
				b = make([]byte, recordMost)
				n, kind, failed = receive(int(fd), b, 0)
			}
			if ended = c.see(kind, b[:n], failed); ended != nil {
				return
			}
		}
		ended = errors.New("the server sends TLS session tickets without end")
	})
	return errors.Join(err, ended)
}

// receive receives from at most one type of records. Its kind is 0 at the stream's end.
func receive(fd int, b []byte, flags int) (n int, kind byte, err error) {
	space := make([]byte, unix.CmsgSpace(1))
	n, had, _, _, err := unix.Recvmsg(fd, b, space, flags|unix.MSG_DONTWAIT)
	if err != nil {
		return 0, 0, err
	}
	messages, err := unix.ParseSocketControlMessage(space[:had])
	if err != nil {
		return 0, 0, err
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_TLS && m.Header.Type == getRecordType && len(m.Data) > 0 {
			return n, m.Data[0], nil
		}
	}
	return n, 0, nil
}

// recordType is the control message by which a record is sent that is no data.
func recordType(kind byte) []byte {
	b := make([]byte, unix.CmsgSpace(1))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = unix.SOL_TLS, setRecordType
	h.SetLen(unix.CmsgLen(1))
	b[unix.CmsgLen(0)] = kind
	return b
}
