package pool

import "context"

// Conn is a connection that nobody uses yet.
type Conn interface {
	// Watch returns an error as soon as the connection is of no use any more, because something came or it has ended. It
	// returns nil when ctx ends before that.
	Watch(ctx context.Context) error
	Close() error
}

// Held is a connection that is watched while nobody uses it. Its owner calls Take or Drop, once.
type Held[C Conn] struct {
	conn    C
	release context.CancelFunc
	ended   chan error // holds the watcher's last word
}

// Hold has a connection watched. lost is called if it ends before it is taken.
func Hold[C Conn](c C, lost func()) *Held[C] {
	watch, release := context.WithCancel(context.Background())
	h := &Held[C]{conn: c, release: release, ended: make(chan error, 1)}
	go func() { // Take and Drop wait for it
		err := c.Watch(watch)
		if h.ended <- err; err != nil {
			lost()
		}
	}()
	return h
}

// Ended tells whether it is of no use any more.
func (h *Held[C]) Ended() bool { return len(h.ended) > 0 }

// Take returns the connection, which is its caller's from now on. With an error it is of no use, and closed.
func (h *Held[C]) Take() (C, error) {
	h.release()
	err := <-h.ended
	if err != nil {
		_ = h.conn.Close() // nothing was said by it
	}
	return h.conn, err
}

// Drop closes the connection.
func (h *Held[C]) Drop() {
	if _, err := h.Take(); err == nil {
		_ = h.conn.Close() // nothing was said by it
	}
}
