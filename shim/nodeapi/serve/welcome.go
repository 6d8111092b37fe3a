package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

// handshakeTimeout bounds the handshake of TLS, and gRPC's.
const handshakeTimeout = 10 * time.Second

// welcoming has TLS shaken hands on before a connection is accepted: strangers are few at a time, and only
// a peer takes a peer's place.
type welcoming struct {
	net.Listener
	conf    *tls.Config
	callers callers

	ready chan accepted
	// life ends with the listener.
	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup
}

// accepted is what Accept returns.
type accepted struct {
	net.Conn
	err error
}

func welcome(l net.Listener, conf *tls.Config) net.Listener {
	w := &welcoming{Listener: Limit(l, Newcomers), conf: conf,
		callers: callers{most: peersEach}, ready: make(chan accepted)}
	w.life, w.end = context.WithCancel(context.Background())
	w.all.Go(w.run)
	return w
}

func (w *welcoming) run() {
	for {
		c, err := w.Listener.Accept()
		if err == nil {
			w.all.Go(func() { w.shake(c.(*placed)) })
		} else if !w.offer(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// shake hands the connection to Accept, or closes it.
func (w *welcoming) shake(c *placed) {
	from := AddressOf(c.RemoteAddr())
	handshake, cancel := context.WithTimeout(w.life, handshakeTimeout)
	defer cancel()
	secure := tls.Server(c, w.conf)
	if secure.HandshakeContext(handshake) != nil || !w.callers.enter(from) {
		_ = c.Close() // of a connection that nobody has had
		return
	}
	c.leave() // the newcomers'
	c.leave = sync.OnceFunc(func() { w.callers.leave(from) })
	if !w.offer(accepted{Conn: secure}) {
		_ = c.Close() // as above
	}
}

// offer waits for Accept to take something, unless the listener ends.
func (w *welcoming) offer(a accepted) bool {
	select {
	case w.ready <- a:
		return true
	case <-w.life.Done():
		return false
	}
}

// Accept implements net.Listener.
func (w *welcoming) Accept() (net.Conn, error) {
	select {
	case a := <-w.ready:
		return a.Conn, a.err
	case <-w.life.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It waits for the handshakes, which it ends.
func (w *welcoming) Close() error {
	w.end()
	err := w.Listener.Close()
	w.all.Wait()
	return err
}
