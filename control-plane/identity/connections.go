package identity

import (
	"errors"
	"net"
	"net/netip"
	"sync"

	"google.golang.org/grpc/credentials"
)

const (
	// connectionsMost bounds the open connections to Identity's port, those that are still
	// in their handshake among them. Each costs up to about 100 KiB, and the control plane
	// has 128 MiB. A daemon keeps one for as long as a call takes, and comes again when it
	// is turned away: thousands that start at a time are through within a minute.
	connectionsMost = 256
	// addressConnectionsMost bounds those of one address: one for its daemon, another for
	// the one that takes over from it, and some that the other end has given up. With
	// fewer than all nobody alone keeps others out.
	addressConnectionsMost = 16
)

var errConnections = errors.New("too many connections to the identity port")

// connections counts those that are open.
type connections struct {
	mu   sync.Mutex
	open int
	from map[netip.Addr]int // addresses with at least one
}

// take counts one more of the address, unless there are too many.
func (c *connections) take(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= connectionsMost || c.from[from] >= addressConnectionsMost {
		return false
	}
	if c.from == nil {
		c.from = map[netip.Addr]int{}
	}
	c.open++
	c.from[from]++
	return true
}

func (c *connections) give(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.from[from]--; c.from[from] == 0 {
		delete(c.from, from)
	}
}

// limited are credentials for a bounded number of connections: gRPC has no option for it,
// and a handshake is the first that it does with one.
type limited struct {
	credentials.TransportCredentials
	connections *connections
}

func limit(c credentials.TransportCredentials) limited { return limited{c, &connections{}} }

// ServerHandshake refuses a connection that is one too many; gRPC closes it then.
func (l limited) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	from := addressOf(raw.RemoteAddr())
	if !l.connections.take(from) {
		return nil, nil, errConnections
	}
	conn, info, err := l.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		l.connections.give(from)
		return nil, nil, err
	}
	return &counted{Conn: conn, closed: sync.OnceFunc(func() { l.connections.give(from) })}, info, nil
}

// Clone counts with the same counter.
func (l limited) Clone() credentials.TransportCredentials {
	return limited{l.TransportCredentials.Clone(), l.connections}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// addressOf is an address without its port; the zero address for those that are not of IP.
func addressOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
