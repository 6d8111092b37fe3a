package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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
	err = raw.Control(func(fd uintptr) {
		ms, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	})
	return time.Duration(ms) * time.Millisecond, errors.Join(err, failed)
}

// PeerSilence is that time of a connection without a large body.
const PeerSilence = peerSilence

// OpenBody opens a body each time that what it returns is called.
func OpenBody(from io.ReadCloser) (open func() io.ReadCloser, whole func() bool, leave func()) {
	b := NewBody(httptest.NewRecorder(), &http.Request{Body: from, ContentLength: -1})
	open = func() io.ReadCloser {
		sent, _ := b.open(context.Background(), nil, false) // it is not in the buffer
		return sent
	}
	return open, b.Whole, b.Leave
}

// Of a node's bodies BodiesLarge have more of its memory than BodySmall; BodiesTaken is how many
// have now.
const (
	BodySmall   = bodySmall
	BodiesLarge = bodiesLarge
)

func BodiesTaken() int { return len(bodiesTaken) }

// NewTransport returns a transport to functions.
func NewTransport() *http.Transport { return newTransport(time.Second) }

// ChunkSize is how much of a body is sent at a time, ChunksMost of how many at the same time.
const (
	ChunkSize  = chunkSize
	ChunksMost = chunksMost
)

// ChunksTaken is of how many bodies that is now.
func ChunksTaken() int { return len(chunksTaken) }

// NewPeerConn is a connection to another node's daemon.
func NewPeerConn(c *tls.Conn) net.Conn { return newPeerConn(c, func() {}) }

// SplitPeerHost reads what PeerHost has written.
func SplitPeerHost(address string) (node, host, port string, err error) {
	return splitPeerHost(address)
}

// Idle is how many connections are kept.
func (k *Kept) Idle() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.idle)
}
