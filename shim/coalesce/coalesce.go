// Package coalesce has the reader of a connection that brings much woken for many packets at
// a time, as a network card coalesces its interrupts. Otherwise a fast stream wakes its reader
// for each packet, and that costs a small node more than all else that it does with the bytes,
// at the very time in which its cores start a sandbox.
package coalesce

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// lot is for how many bytes a reader is woken. Twenty packets leave next to nothing of the
	// cost of waking for each.
	lot = 32 << 10
	// patience is how long less than a lot may lie there: this late the end of a body can be,
	// unless the connection ends with it.
	patience = 4 * time.Millisecond
	// much is how many bytes have to come within patience for a connection to bring much. It is
	// more than a lot, so that the next one comes in time.
	much = 2 * lot
)

// Conn is a connection that coalesces. Its other methods are those of the TCP connection.
type Conn struct {
	*net.TCPConn

	// Only the reader uses these.
	since time.Time // when it began to count
	came  int       // how many bytes came since then

	last    atomic.Int64 // when it was read from, in ns since start
	start   time.Time
	waiting atomic.Bool // lots are waited for

	mu     sync.Mutex
	late   *time.Timer // nil until it is first needed
	closed bool
}

// New returns c as one that coalesces.
func New(c *net.TCPConn) *Conn { return &Conn{TCPConn: c, start: time.Now()} }

// NetConn returns the TCP connection.
func (c *Conn) NetConn() net.Conn { return c.TCPConn }

// Read reads what is there, and waits for a lot if nothing is and much has come.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	now := time.Now()
	c.last.Store(int64(now.Sub(c.start)))
	if c.waiting.Load() {
		return n, err
	}
	if now.Sub(c.since) > patience {
		c.since, c.came = now, 0
	}
	if c.came += n; c.came >= much {
		c.since, c.came = now, 0
		c.coalesce()
	}
	return n, err
}

// coalesce has lots waited for from now on.
func (c *Conn) coalesce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.wakeFor(lot) {
		return
	}
	c.waiting.Store(true)
	if c.late == nil {
		c.late = time.AfterFunc(patience, c.look)
		return
	}
	c.late.Reset(patience)
}

// look ends the wait for lots if nothing was read for too long. Linux wakes the reader then if
// there is anything to read (tcp_set_rcvlowat).
func (c *Conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	quiet := time.Since(c.start) - time.Duration(c.last.Load())
	if quiet < patience {
		c.late.Reset(patience - quiet)
		return
	}
	c.waiting.Store(false)
	c.wakeFor(1)
}

// wakeFor sets for how many bytes the reader is woken (socket(7), SO_RCVLOWAT).
func (c *Conn) wakeFor(bytes int) (set bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, bytes) == nil
	})
	return set && err == nil
}

// Close closes the connection.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	if c.late != nil {
		c.late.Stop()
	}
	c.mu.Unlock()
	return c.TCPConn.Close()
}

// Listener returns l with connections that coalesce, where they are TCP's.
func Listener(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, is := c.(*net.TCPConn); is {
		return New(tcp), err
	}
	return c, err
}
