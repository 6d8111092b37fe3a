package connections

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

const (
	// pumpBuffer is what one direction of a stream has in the daemon, in bytes: a record of TLS (RFC 8446, section 5.1).
	pumpBuffer = 16 << 10
	// drainLook is how often Drain looks whether streams are left.
	drainLook = 50 * time.Millisecond
)

var buffers = sync.Pool{New: func() any { b := make([]byte, pumpBuffer); return &b }}

// pump copies both ways until both ends are over. If one breaks off, or ctx ends, both are aborted: half a stream is not to
// look like a whole one.
func pump(ctx context.Context, client, server net.Conn) {
	cut := func() { abort(client); abort(server) }
	defer context.AfterFunc(ctx, cut)()
	copyOneWay := func(to, from net.Conn) {
		if !passOn(to, from) {
			cut()
		}
	}
	var up sync.WaitGroup
	up.Go(func() { copyOneWay(server, client) })
	copyOneWay(client, server)
	up.Wait()
}

// passOn passes on what comes, and then its end; false: that was no orderly end.
func passOn(to, from net.Conn) bool {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buffer)
	half, can := to.(interface{ CloseWrite() error })
	return err == nil && can && half.CloseWrite() == nil
}

// abort resets a stream of TCP, below TLS, which would say that this is the end. A unix socket knows no other end than that.
func abort(c net.Conn) {
	c = inner(c)
	if tcp, is := c.(interface{ SetLinger(sec int) error }); is {
		_ = tcp.SetLinger(0) // it fails on a stream that is closed already
	}
	_ = c.Close()
}

// Drain gives up what waits, which another daemon has from now on. It returns when no program's stream passes the daemon any more, or when ctx ends.
func (s *Server) Drain(ctx context.Context) {
	s.pool.Close()
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for s.pumped.Load() > 0 {
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}
