package ktls

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"os"
	"time"
)

// A record's header and the types that it has outside (RFC 8446, section 5.1): what is encrypted says that it is data.
const (
	headerLength   = 5
	typeHandshake  = 22
	typeData       = 23
	labelFromHere  = "CLIENT_TRAFFIC_SECRET_0"
	labelFromThere = "SERVER_TRAFFIC_SECRET_0"
)

// direction is one of a stream of records.
type direction struct {
	header    [headerLength]byte
	had, left int // bytes that have passed of the header, or are left of the body
	// encrypted is how many records have been encrypted with the present keys.
	encrypted uint64
	secret    []byte // which the keys are derived from; nil: those of the data are not known yet
}

// wants is how many bytes can pass without the next record's.
func (d *direction) wants() int {
	if d.left > 0 {
		return d.left
	}
	return headerLength - d.had
}

// note follows bytes that have passed.
func (d *direction) note(b []byte) {
	for len(b) > 0 {
		n := min(len(b), d.wants())
		if d.left > 0 {
			d.left -= n
		} else if d.had += copy(d.header[d.had:], b[:n]); d.had == headerLength {
			d.had, d.left = 0, int(binary.BigEndian.Uint16(d.header[headerLength-2:]))
			if d.header[0] == typeData {
				d.encrypted++
			}
		}
		b = b[n:]
	}
}

// whole tells whether all records that have begun have passed.
func (d *direction) whole() bool { return d.had == 0 && d.left == 0 }

// follower is a stream below a tls.Conn. It knows how many records have passed since the keys of the data are in use,
// which tls.Conn tells nobody. It reads no byte of a record before tls.Conn asks for that record, so that none is left
// there. Its methods are called as a tls.Conn calls them: one Read and one Write at a time.
type follower struct {
	net.Conn
	speaksTLS bool // from the ClientHello on: before, PostgreSQL's SSLRequest passes
	in, out   direction
	finishing bool // the next write is the handshake's last one
	closed    bool // for reading: nothing more comes
	gone      bool // the kernel has it, and what tls.Conn still says or ends is none of its business
}

// NetConn returns the stream below, as tls.Conn's does.
func (f *follower) NetConn() net.Conn { return f.Conn }

func (f *follower) Read(b []byte) (int, error) {
	if f.closed {
		return 0, os.ErrDeadlineExceeded // after which a tls.Conn is as before
	}
	if !f.speaksTLS {
		return f.Conn.Read(b)
	}
	n, err := f.Conn.Read(b[:min(len(b), f.in.wants())])
	f.in.note(b[:n])
	return n, err
}

// Close closes the stream, unless that is somebody else's by now.
func (f *follower) Close() error {
	if f.gone {
		return nil
	}
	return f.Conn.Close()
}

// SetWriteDeadline is what a tls.Conn that is closed ends its writes by.
func (f *follower) SetWriteDeadline(t time.Time) error {
	if f.gone {
		return nil
	}
	return f.Conn.SetWriteDeadline(t)
}

func (f *follower) Write(b []byte) (int, error) {
	if f.gone {
		return 0, net.ErrClosed // the kernel would encrypt it once more
	}
	f.speaksTLS = f.speaksTLS || len(b) > 0 && b[0] == typeHandshake
	n, err := f.Conn.Write(b)
	if f.speaksTLS {
		f.out.note(b[:n])
	}
	if f.finishing {
		// What crypto/tls sends between deriving the data's keys and using them is one write.
		f.finishing, f.out.encrypted = false, 0
	}
	return n, err
}

// forget clears the secrets.
func (f *follower) forget() {
	clear(f.in.secret)
	clear(f.out.secret)
	f.in.secret, f.out.secret = nil, nil
}

// keyLog is a follower as tls.Config's KeyLogWriter. It keeps what the kernel needs.
type keyLog struct{ *follower }

// Write gets a line: a label, the client's random, and the secret, both in hexadecimal. By then the server's last
// record of the handshake has been read.
func (l keyLog) Write(line []byte) (int, error) {
	words := bytes.Fields(line)
	if len(words) != 3 {
		return len(line), nil
	}
	d := &l.in
	switch string(words[0]) {
	case labelFromHere:
		d, l.finishing = &l.out, true
	case labelFromThere:
		d.encrypted = 0
	default:
		return len(line), nil
	}
	d.secret = make([]byte, hex.DecodedLen(len(words[2])))
	if _, err := hex.Decode(d.secret, words[2]); err != nil {
		d.secret = nil
	}
	return len(line), nil
}
