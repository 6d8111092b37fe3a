package serve

import (
	"net"
	"sync"
)

// Limit has at most n connections of l open at a time; further ones wait until one is closed.
// netutil.LimitListener does the same, and hides what OnLeft needs.
func Limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, places: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	places chan struct{} // one in it for each connection
	end    sync.Once
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
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

// NetConn is for WithConnection.
func (c *placed) NetConn() net.Conn { return c.Conn }
