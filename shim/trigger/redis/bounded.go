package redis

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"

	"github.com/headstart-mesh/headstart/shim/trigger"
)

// errTooMuch is an answer that is larger than a node takes.
var errTooMuch = errors.New("the server's answer is larger than a node takes")

// headMost is as much of the line that a value begins with as its length needs, in bytes.
const headMost = 32

// dialer makes a connection.
type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// bound has connections end with errTooMuch before an answer that is larger than
// trigger.TakeMost. The client itself reads whatever the server says, and makes room for each value
// before the first byte of it.
func bound(connect dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := connect(ctx, network, address)
		if err != nil {
			return nil, err
		}
		b := &bounded{Conn: c}
		if raw, is := c.(syscall.Conn); is { // by which the client sees that one has ended
			return struct {
				*bounded
				syscall.Conn
			}{b, raw}, nil
		}
		return b, nil
	}
}

// bounded is a connection that follows Redis' protocol (RESP 2) as far as the lengths of values.
// Its one user writes a command, or some, and reads what is answered.
type bounded struct {
	net.Conn
	left int64  // bytes that the answer may still have
	skip int64  // bytes of a value that are still to come, with its end
	head []byte // of the line that is being read
}

func (c *bounded) Write(p []byte) (int, error) {
	c.left = trigger.TakeMost
	return c.Conn.Write(p)
}

func (c *bounded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.admits(p[:n]) {
		return 0, errTooMuch
	}
	return n, err
}

// admits tells whether these bytes of the answer, and the value that begins in them, are no more
// than it may have.
func (c *bounded) admits(p []byte) bool {
	c.left -= int64(len(p))
	for len(p) > 0 && c.left >= 0 {
		if c.skip > 0 {
			n := min(c.skip, int64(len(p)))
			c.skip -= n
			p = p[n:]
			continue
		}
		line, rest, whole := bytes.Cut(p, []byte("\n"))
		c.head = append(c.head, line[:min(len(line), headMost-len(c.head))]...)
		if !whole {
			break
		}
		p = rest
		c.skip = value(c.head)
		c.head = c.head[:0]
		if c.skip > c.left+int64(len(p)) {
			return false
		}
	}
	return c.left >= 0
}

// value is how many bytes follow a line of the protocol, a value's and its end's; 0 if none do.
func value(head []byte) int64 {
	length, is := bytes.CutPrefix(bytes.TrimSuffix(head, []byte("\r")), []byte("$"))
	n, err := strconv.ParseInt(string(length), 10, 64)
	switch {
	case !is || n < 0:
		return 0
	case err != nil || n > trigger.TakeMost: // of a number that is too large n is the largest
		return trigger.TakeMost + 1
	}
	return n + int64(len("\r\n"))
}
