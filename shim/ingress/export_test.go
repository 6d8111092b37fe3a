package ingress

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What tests of time and limits need to know.
const (
	HintLife       = hintLife
	HeldMost       = heldMost
	HeldOfFunction = heldOfFunction
	HintsOpen      = hintsOpen
	SyncTimeout    = syncTimeout
	Placement      = placementTimeout
	Grace          = deliveryGrace
)

// Silence is how long a connection between daemons lets what was sent be unacknowledged, once
// it is to carry a body of that size; 0 is the kernel's own time.
func Silence(c *tls.Conn, body int64) (time.Duration, error) {
	peer := newPeerConn(c, func() {})
	peer.carry(body)
	raw, err := c.NetConn().(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var ms int
	var failed error
	err = raw.Control(func(fd uintptr) { ms, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT) })
	return time.Duration(ms) * time.Millisecond, errors.Join(err, failed)
}

// PeerSilence is that time of a connection without a large body.
const PeerSilence = peerSilence

// Ended is a connection that the other side has ended for that reason.
func Ended(why error) net.Conn {
	e := newEnding()
	e.heard(why)
	return struct {
		net.Conn
		ending
	}{ending: e}
}

// BodyKept is how much of a body can be sent again; OpenBody opens one each time that what
// it returns is called.
const BodyKept = bodyKept

func OpenBody(from io.ReadCloser) (open func() io.ReadCloser, whole func() bool, leave func()) {
	b := newClientBody(&http.Request{Body: from, ContentLength: -1})
	open = func() io.ReadCloser {
		sent, _ := b.open(context.Background(), nil, false) // it is not in the buffer
		return sent
	}
	return open, b.whole, func() { b.leave(nil) }
}

// Of a node's bodies BodiesLarge have more of its memory than BodySmall; BodiesTaken is how many
// have now.
const (
	BodySmall   = bodySmall
	BodiesLarge = bodiesLarge
)

func BodiesTaken() int { return len(bodiesTaken) }

// Placements is how often a request is placed at most.
const Placements = placements

// Hasten has requests placed again without a pause to speak of.
func (in *Ingress) Hasten() { in.pause = time.Microsecond }

// Relays has requests for other autoscalers sent by rt.
func (in *Ingress) Relays(rt http.RoundTripper) { in.relaySide = transports{protocolH1: rt} }

// NewTransport returns a transport to functions.
func NewTransport() *http.Transport { return newTransport(time.Second) }

// ChunkSize is how much of a body is sent at a time, ChunksMost of how many at the same time.
const (
	ChunkSize  = chunkSize
	ChunksMost = chunksMost
)

// ChunksTaken is of how many bodies that is now.
func ChunksTaken() int { return len(chunksTaken) }

// AheadMost is how far a body may be ahead of its way to another node.
const AheadMost = aheadMost

// NotDialed is what a transport says that found nobody.
var NotDialed = &net.OpError{Op: opDial, Net: "tcp", Err: errors.New("nobody is there")}

// NewPeerConn is a connection to another node's daemon.
func NewPeerConn(c *tls.Conn) net.Conn { return newPeerConn(c, func() {}) }
