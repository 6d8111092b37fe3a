package connections

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// pumpBuffer is what one direction of a stream has in the daemon, in bytes: a record of TLS (RFC 8446, section 5.1).
const pumpBuffer = 16 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, pumpBuffer); return &b }}

// pumps are the streams that pass the daemon. Its zero value is ready to use.
type pumps struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when none runs any more; nil: nobody waits for that
}

// run copies both ways until both ends are over. ctx cuts the streams off.
func (p *pumps) run(ctx context.Context, client, server net.Conn) {
	p.begin()
	defer p.end()
	defer context.AfterFunc(ctx, func() {
		_ = client.SetDeadline(past) // both copies end
		_ = server.SetDeadline(past)
	})()
	var up sync.WaitGroup
	up.Go(func() { copyOneWay(server, client) })
	copyOneWay(client, server)
	up.Wait()
}

// copyOneWay passes on what comes, and then its end. Without an orderly end the whole stream is over.
func copyOneWay(to, from net.Conn) {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buffer)
	half, can := to.(interface{ CloseWrite() error })
	if err == nil && can && half.CloseWrite() == nil {
		return
	}
	now := time.Now()
	_ = to.SetDeadline(now) // the other direction ends
	_ = from.SetDeadline(now)
}

func (p *pumps) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running++
}

func (p *pumps) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running--; p.running == 0 && p.idle != nil {
		close(p.idle)
		p.idle = nil
	}
}

// over is closed when no stream passes the daemon any more.
func (p *pumps) over() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	if p.running == 0 {
		close(p.idle)
		defer func() { p.idle = nil }()
	}
	return p.idle
}

// count is how many pass the daemon.
func (p *pumps) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// Drain gives up what waits, which another daemon has from now on. It returns when no program's stream passes the daemon any more, or when ctx ends.
func (s *Server) Drain(ctx context.Context) {
	s.pool.Close()
	select {
	case <-s.pumped.over():
	case <-ctx.Done():
	}
}
