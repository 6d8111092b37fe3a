package proxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Settles is after how long without a request a connection is used again: a program that ends it with its answer, and does not
	// say so in that, has done it by then.
	Settles = 10 * time.Millisecond
	// keptFor is how long a connection without a request is kept: servers that close such connections wait longer for the next
	// request, gunicorn 2 s, uvicorn and Node.js 5 s.
	keptFor = time.Second
)

// Kept sends requests by HTTP/1.1 to programs that are called again and again. A connection is kept for a program's next request: a new
// one takes half a millisecond of its processor and of ours, where the kernel's calls are dear (a virtual machine). At most one has no
// request, and none is opened beside it, as a program may serve one connection at a time.
type Kept struct {
	dial, settles time.Duration

	mu   sync.Mutex
	idle map[string]*kept // by address
}

// NewKept returns one whose connections come about within dial, and are used again when they have had no request for settles.
func NewKept(dial, settles time.Duration) *Kept {
	return &Kept{dial: dial, settles: settles, idle: map[string]*kept{}}
}

// kept is a connection with a transport of its own.
type kept struct {
	transport *http.Transport
	since     time.Time // without a request
	settled   bool
	written   atomic.Bool // something of the request
}

// RoundTrip implements http.RoundTripper. The error of a request of which nothing was written is that of a connection that does not come
// about (IsDial).
func (k *Kept) RoundTrip(r *http.Request) (*http.Response, error) {
	c := k.take(r.URL.Host)
	if c == nil {
		c = k.open(r.URL.Host)
	}
	c.written.Store(false)
	put := &httptrace.ClientTrace{PutIdleConn: func(err error) {
		if err == nil {
			k.put(r.URL.Host, c)
		}
	}}
	resp, err := c.transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), put)))
	if err != nil && !IsDial(err) && r.Context().Err() == nil && !c.written.Load() {
		err = &net.OpError{Op: opDial, Net: "tcp", Err: fmt.Errorf("the connection was closed: %w", err)}
	}
	return resp, err
}

// take returns the connection to an address that can be used again; nil: there is none.
func (k *Kept) take(address string) *kept {
	k.mu.Lock()
	c := k.idle[address]
	delete(k.idle, address)
	k.mu.Unlock()
	if c == nil {
		return nil
	}
	if c.settled = c.settled || time.Since(c.since) >= k.settles; !c.settled {
		c.transport.CloseIdleConnections()
		return nil
	}
	return c
}

// put keeps a connection that has no request any more, in the place of another one.
func (k *Kept) put(address string, c *kept) {
	k.mu.Lock()
	other := k.idle[address]
	c.since = time.Now()
	k.idle[address] = c
	k.mu.Unlock()
	if other != nil && other != c {
		other.transport.CloseIdleConnections()
	}
}

// forget forgets a connection that is closed.
func (k *Kept) forget(address string, c *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.idle[address] == c {
		delete(k.idle, address)
	}
}

// open returns one that is opened for its first request.
func (k *Kept) open(address string) *kept {
	c := &kept{transport: newTransport(k.dial)}
	dial := c.transport.DialContext
	c.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if to, is := conn.(functionConn); is {
			k.mu.Lock()
			defer k.mu.Unlock()
			c.settled = false
			return keptConn{to, c, func() { k.forget(address, c) }}, err
		}
		return conn, err
	}
	c.transport.MaxIdleConnsPerHost, c.transport.IdleConnTimeout = 1, keptFor
	return c
}

// Close closes the connections that have no request.
func (k *Kept) Close() {
	k.mu.Lock()
	idle := k.idle
	k.idle = map[string]*kept{}
	k.mu.Unlock()
	for _, c := range idle {
		c.transport.CloseIdleConnections()
	}
}

// keptConn is a connection that is kept.
type keptConn struct {
	functionConn
	of     *kept
	closed func()
}

// Write implements net.Conn.
func (c keptConn) Write(p []byte) (int, error) {
	n, err := c.functionConn.Write(p)
	if n > 0 {
		c.of.written.Store(true)
	}
	return n, err
}

// ReadFrom implements io.ReaderFrom.
func (c keptConn) ReadFrom(r io.Reader) (int64, error) {
	c.of.written.Store(true) // or it is about to be
	return c.functionConn.ReadFrom(r)
}

// Close implements net.Conn.
func (c keptConn) Close() error {
	c.closed()
	return c.functionConn.Close()
}
