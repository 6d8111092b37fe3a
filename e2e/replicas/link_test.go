//go:build integration

package replicas

import (
	"net"
	"sync"
	"testing"
)

// link is the way to a program: a listener that passes bytes on, until it stalls. It goes to
// the first of its ends that takes the connection, as a Service does.
type link struct {
	address string
	l       net.Listener
	running sync.WaitGroup

	mu     sync.Mutex
	ends   []string
	gate   chan struct{} // closed while bytes pass
	conns  map[net.Conn]bool
	closed bool
}

func newLink(t *testing.T) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{address: l.Addr().String(), l: l, gate: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(k.gate)
	k.running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			k.running.Go(func() { k.connect(c) })
		}
	})
	t.Cleanup(k.close)
	return k
}

// leadTo has connections from now on go to these ends.
func (k *link) leadTo(ends ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ends = ends
}

// stall has nothing pass any more, and nobody told so, until pass is called.
func (k *link) stall() (pass func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	gate := make(chan struct{})
	k.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

func (k *link) close() {
	_ = k.l.Close() // it only listens
	k.mu.Lock()
	k.closed = true
	for c := range k.conns {
		c.Close()
	}
	k.mu.Unlock()
	k.running.Wait()
}

func (k *link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		c.Close()
		return false
	}
	k.conns[c] = true
	return true
}

func (k *link) drop(c net.Conn) {
	c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

func (k *link) connect(from net.Conn) {
	if !k.keep(from) {
		return
	}
	defer k.drop(from)
	k.mu.Lock()
	ends := k.ends
	k.mu.Unlock()
	for _, end := range ends {
		to, err := net.Dial("tcp", end)
		if err != nil {
			continue
		}
		if k.keep(to) {
			var both sync.WaitGroup
			both.Go(func() { k.copy(to, from) })
			both.Go(func() { k.copy(from, to) })
			both.Wait()
		}
		k.drop(to)
		return
	}
}

// copy passes on what comes, when it may; the end of one direction is that of both.
func (k *link) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		k.mu.Lock()
		gate := k.gate
		k.mu.Unlock()
		<-gate
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
