package serve

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Crowd is how many connections a listener has open at a time.
type Crowd struct {
	// All is how many there are in all. Further ones wait until one is closed.
	All int
	// Each is how many one address may have, where any caller may connect: fewer than All, so that nobody
	// alone keeps others out. Further ones are closed. 0: All.
	Each int
}

// The crowds of Headstart's listeners. An open connection costs a program some 20 KiB of memory, one of
// gRPC up to 100 KiB.
var (
	// Own is for sockets and loopback: their one caller, or the operator, keeps nobody else out.
	Own = Crowd{All: 16384}
	// Strangers is for ports where everybody in the cluster may connect, and nobody stays.
	Strangers = Crowd{All: 256, Each: 16}
	// Parties is for ports where each node has some connections, and each gateway one per core.
	Parties = Crowd{All: 8192, Each: 256}
	// Newcomers are connections that are in the handshake of mutual TLS. They leave this crowd with it.
	Newcomers = Crowd{All: 1024, Each: 128}
)

// peersEach is how many connections a peer may have after it: each request on its way between two nodes has
// one of its own, and 8192 is what a node holds. Peers are few, and have the authority's certificates.
const peersEach = 8192

// Limit has at most as many connections of l open at a time as the crowd has. netutil.LimitListener
// knows no addresses, and hides what OnLeft needs.
func Limit(l net.Listener, most Crowd) net.Listener {
	return &limited{Listener: l, places: make(chan struct{}, most.All), callers: callers{most: most.Each},
		closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	places  chan struct{} // one in it for each connection
	callers callers
	end     sync.Once
	closed  chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.places
			return nil, err
		}
		from := AddressOf(c.RemoteAddr())
		if l.callers.enter(from) {
			return &placed{Conn: c, leave: sync.OnceFunc(func() { l.callers.leave(from); <-l.places })}, nil
		}
		_ = c.Close() // it has been told nothing
	}
}

func (l *limited) Close() error {
	l.end.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// placed is a connection that takes a place.
type placed struct {
	net.Conn
	leave func()
}

func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// NetConn is the connection itself, as tls.Conn has it.
func (c *placed) NetConn() net.Conn { return c.Conn }

// CloseWrite is for http.Server, which lets a client read an answer to its end.
func (c *placed) CloseWrite() error {
	half, is := c.Conn.(interface{ CloseWrite() error })
	if !is {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// SyscallConn implements syscall.Conn.
func (c *placed) SyscallConn() (syscall.RawConn, error) {
	raw, is := c.Conn.(syscall.Conn)
	if !is {
		return nil, errors.ErrUnsupported
	}
	return raw.SyscallConn()
}

// callers counts connections by address.
type callers struct {
	most int // 0: any number

	mu sync.Mutex
	of map[netip.Addr]int // with at least one
}

// enter counts one more of an address, unless there are too many. Those without an address are one.
func (c *callers) enter(from netip.Addr) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most > 0 && c.of[from] >= c.most {
		return false
	}
	if c.of == nil {
		c.of = map[netip.Addr]int{}
	}
	c.of[from]++
	return true
}

func (c *callers) leave(from netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[from]--; c.of[from] == 0 {
		delete(c.of, from)
	}
}

// AddressOf is an address without its port; the zero address for those that are not of IP.
func AddressOf(a net.Addr) netip.Addr {
	if a == nil {
		return netip.Addr{}
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}
