package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	// peerDialTimeout: a node may be a slow edge link away, but not gone for longer.
	peerDialTimeout = 5 * time.Second
	// peerSilence is how long a peer may say nothing, not even that it has what was sent:
	// then its node is gone, and those that wait for it are told.
	peerSilence = 9 * time.Second
	// peerIdle keeps connections between nodes for the next request: a new one costs
	// two round trips. A daemon that ends closes them, so that none is stale for long.
	peerIdle = 90 * time.Second
	// lastWords is how long a daemon without a core to spare may take to read what another one
	// has said before it closed the connection.
	lastWords = 2 * time.Second
)

// nodeMark is between a node's name, in which it cannot be (RFC 1123), and its address.
const nodeMark = "~"

// PeerHost is the host of a URL that leads to a node's daemon at an address (host:port). It names both,
// so that a connection of before is used for that node alone, even if another one has its address now.
func PeerHost(node, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address // nobody can dial it
	}
	return net.JoinHostPort(node+nodeMark+host, port)
}

func splitPeerHost(address string) (node, host, port string, err error) {
	host, port, err = net.SplitHostPort(address)
	if err != nil {
		return "", "", "", err
	}
	node, host, named := strings.Cut(host, nodeMark)
	if !named {
		return "", "", "", fmt.Errorf("%s names no node", address)
	}
	return node, host, port, nil
}

// NewPeerTransport returns a transport to other nodes' daemons, by URLs with a PeerHost. They have
// their name and address in their certificate. client returns the configuration for one connection
// to a node at a host: certificates may be renewed between two. opened hears of each connection, and
// closed is called when that ends; it may be nil.
func NewPeerTransport(client func(node, host string) (*tls.Config, error), opened func(*tls.Conn) (closed func()),
) *http.Transport {
	if opened == nil {
		opened = func(*tls.Conn) func() { return func() {} }
	}
	dialer := &net.Dialer{Timeout: peerDialTimeout, Control: silence,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: peerSilence / 3, Interval: peerSilence / 3, Count: 3}}
	t := Plain()
	t.IdleConnTimeout = peerIdle
	t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		node, host, port, err := splitPeerHost(address)
		if err != nil {
			return nil, fmt.Errorf("dialing a peer: %w", err)
		}
		conf, err := client(node, host)
		if err != nil {
			return nil, fmt.Errorf("dialing a peer: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, 2*peerDialTimeout) // the handshake's, too
		defer cancel()
		c, err := (&tls.Dialer{NetDialer: dialer, Config: conf}).DialContext(ctx, network, net.JoinHostPort(host, port))
		if err != nil {
			// Nobody gets a request by a connection that is not secured, either: its node may
			// have died meanwhile, or another one may have its address now.
			return nil, &net.OpError{Op: opDial, Net: "tls", Err: err}
		}
		conn := c.(*tls.Conn) // as it says
		return newPeerConn(conn, opened(conn)), nil
	}
	return t
}

// peerConn is a connection to another node's daemon.
type peerConn struct {
	*tls.Conn
	ending
	closed func()
}

func newPeerConn(c *tls.Conn, closed func()) *peerConn {
	return &peerConn{Conn: c, ending: newEnding(), closed: closed}
}

// Close ends the connection at once, what is still on its way in it included. The other side
// would hear of the end only behind all that, for which it may have no room (RFC 9293, section
// 3.10.4). Nobody reads from it any more, which a failed Write need not wait for then.
func (c *peerConn) Close() error {
	defer c.end(net.ErrClosed)
	c.closed()
	if tcp, is := c.NetConn().(*net.TCPConn); is && unsent(tcp) > 0 {
		_ = tcp.SetLinger(0) // of a connection that has ended already
	}
	return c.Conn.Close()
}

// carry prepares the connection for a body of that many bytes, -1 for any number: one that the
// other side's kernel may have no room for can wait for its function in the connection.
func (c *peerConn) carry(body int64) {
	patience := peerSilence
	if body < 0 || body > windowful {
		patience = 0
	}
	socket(c.NetConn(), func(fd int) { _ = bound(fd, patience) }) // it has the bound of before then
}

func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.heard(err)
	return n, err
}

// Write fails when all that came before the connection's end has been read, when it is closed, or
// after lastWords: a transport takes a failed write for the request's end, and the other side may
// have answered before it closed.
func (c *peerConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		late := time.NewTimer(lastWords)
		defer late.Stop()
		select {
		case <-c.Over().Done():
		case <-late.C:
		}
	}
	return n, err
}
