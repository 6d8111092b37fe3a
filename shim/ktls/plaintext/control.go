package plaintext

import (
	"errors"
	"fmt"
	"io"
)

// Types of records, and of what is in those that are no data (RFC 8446, sections 4, 5.1 and 6).
const (
	typeAlert     = 21
	typeHandshake = 22
	typeData      = 23

	alertLength       = 2
	alertCloseNotify  = 0
	alertUserCanceled = 90

	messageHeader    = 4
	messageNewTicket = 4
	messageKeyUpdate = 24
	// messageMost bounds a message, in bytes, as crypto/tls does. Tickets have some hundred.
	messageMost = 64 << 10
)

// ErrRekeyed says that the server has changed its keys, which it alone and the program that made the handshake know.
var ErrRekeyed = errors.New("the server has changed its TLS keys")

// control follows the records of a stream that are no data. They may come in pieces.
type control struct {
	kind   byte // of what has begun
	header [messageHeader]byte
	had    int // of the header
	left   int // of a message's body
}

// note returns nil if the stream goes on, io.EOF if the server has ended it, and otherwise why it cannot go on.
func (c *control) note(kind byte, b []byte) error {
	if kind != c.kind && (c.had > 0 || c.left > 0) {
		return fmt.Errorf("a TLS record of type %d interrupts one of type %d", kind, c.kind)
	}
	c.kind = kind
	switch kind {
	case typeData:
		return nil
	case typeAlert, typeHandshake:
	default:
		return fmt.Errorf("the server has sent a TLS record of type %d", kind)
	}
	for len(b) > 0 {
		n := min(len(b), c.left)
		if c.left -= n; n == 0 {
			n = copy(c.header[c.had:c.length()], b)
			c.had += n
		}
		b = b[n:]
		if c.had < c.length() {
			continue
		}
		c.had = 0
		if err := c.begin(); err != nil {
			return err
		}
	}
	return nil
}

// length is that of a header.
func (c *control) length() int {
	if c.kind == typeAlert {
		return alertLength
	}
	return messageHeader
}

// begin looks at a header.
func (c *control) begin() error {
	if c.kind == typeAlert {
		switch c.header[1] {
		case alertCloseNotify:
			return io.EOF
		case alertUserCanceled: // close_notify follows
			return nil
		}
		return fmt.Errorf("the server ends the connection with TLS alert %d", c.header[1])
	}
	switch c.header[0] {
	case messageKeyUpdate:
		return ErrRekeyed
	case messageNewTicket:
	default:
		return fmt.Errorf("the server has sent a TLS handshake message of type %d", c.header[0])
	}
	c.left = int(c.header[1])<<16 | int(c.header[2])<<8 | int(c.header[3])
	if c.left > messageMost {
		return fmt.Errorf("the server has sent a TLS session ticket of %d bytes", c.left)
	}
	return nil
}
