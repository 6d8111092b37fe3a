package connections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/headstart-mesh/headstart/shim/session"
)

// waiting is a session that nobody uses yet, or, where nobody knows what the program will ask for, a stream alone.
type waiting struct {
	conn net.Conn
	// session is nil if nobody is logged in yet.
	session *session.Session
	// waited hears that it has waited, or was lost to the server's first words; nil: nobody wants to know.
	waited func(lost bool)
}

var past = time.Unix(1, 0)

// Watch implements pool.Conn. By TLS it reads what is the connection's own, such as session tickets; those are no bytes
// of the server's.
func (w waiting) Watch(ctx context.Context) error {
	began, stop := time.Now(), until(ctx, w.conn)
	n, err := w.conn.Read(make([]byte, 1))
	stop()
	if lost := n > 0 && time.Since(began) < firstWords; w.waited != nil && (lost || n == 0 && ctx.Err() != nil) {
		w.waited(lost)
	}
	switch {
	case n > 0:
		return errors.New("the server has said something")
	case ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
		return w.conn.SetReadDeadline(time.Time{})
	}
	return fmt.Errorf("the server has ended it: %w", err)
}

// Close implements pool.Conn.
func (w waiting) Close() error { return w.conn.Close() }
