package connections

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/headstart-mesh/headstart/shim/ktls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/pool"
	"github.com/headstart-mesh/headstart/shim/session"
)

// The ways by which a program gets a connection.
const (
	wayPool  = "pool"  // it waited on the node
	wayAhead = "ahead" // it was made while the sandbox started
	wayFresh = "fresh" // it was made when the program asked
)

// Why a program does not get one that waits.
const (
	reasonEmpty      = "empty"       // none waited
	reasonOtherStart = "other-start" // one waited that was logged in for a driver with other parameters
	reasonNotAllowed = "not-allowed" // the operator's list does not have it for the function
	reasonFailed     = "failed"      // it cannot be made
	reasonConnect    = "connect-unavailable"
	reasonFull       = "full"    // too many are in the daemon's hands
	reasonNoShim     = "no-shim" // it passes the daemon, since no shim joins it
)

// caller is a program that asks for a connection to a destination.
type caller struct {
	server *Server
	sb     *sandbox
	name   string
	d      *destination
	way    string         // by which it has got one
	wanted *session.Start // what it has wanted of the pool last; nil: nothing
}

func (c *caller) key(start session.Start) pool.Key {
	return pool.Key{Namespace: c.sb.namespace, Function: c.sb.Function, Destination: c.name, Start: string(start)}
}

// took notes what the program has in the end.
func (c *caller) took(start session.Start) {
	c.server.starts.note(c.sb.Function, c.name, start)
	if c.wanted != nil && *c.wanted != start {
		c.server.pool.Correct(c.key(*c.wanted), string(start))
	}
}

// Last implements session.Sessions.
func (c *caller) Last() session.Start {
	start, _ := c.server.starts.last(c.sb.Function, c.name)
	return start
}

// Take implements session.Sessions.
func (c *caller) Take(ctx context.Context, start session.Start) (*session.Session, error) {
	w, err := c.take(ctx, start)
	if err != nil {
		c.server.config.Metrics.fallback(c.name, reasonFailed)
		return nil, err // the session's own words name the destination
	}
	return w.session, nil
}

// take returns a session that was opened with the start.
func (c *caller) take(ctx context.Context, start session.Start) (w waiting, err error) {
	s := c.server
	w, ok := c.waits(ctx, start) // for as long as a sidecar needs
	if ok && w.session != nil {
		return w, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if ok {
		return s.open(ctx, c.d, c.sb.Function, start, func(context.Context) (net.Conn, error) { return w.conn, nil })
	}
	c.way = wayFresh
	if w, err = s.connect(ctx, c.sb, c.d, start); err != nil && c.wanted != nil {
		s.pool.Forget(c.key(*c.wanted)) // else it would be tried on, for nobody
		c.wanted = nil
	}
	return w, err
}

// waits returns what waits for the function or the sandbox: a session that was opened with the start, or a stream alone.
func (c *caller) waits(ctx context.Context, start session.Start) (w waiting, ok bool) {
	s := c.server
	if c.d.onNode() {
		c.wanted = &start
		w, ok = s.pool.Take(ctx, c.key(start))
		c.way = wayPool
	} else {
		w, ok = s.ahead(ctx, c.sb, c.name, start)
		c.way = wayAhead
	}
	switch {
	case !ok:
		s.config.Metrics.fallback(c.name, reasonEmpty)
	case w.session != nil && w.session.Start != start:
		_ = w.Close() // it was logged in for nobody
		s.config.Metrics.fallback(c.name, reasonOtherStart)
		return waiting{}, false
	default:
		_ = w.conn.SetReadDeadline(time.Time{}) // it has not expired; one that cannot be set is that of a closed connection
	}
	return w, ok
}

// Dial implements session.Sessions.
func (c *caller) Dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return c.server.dial(ctx, c.sb, c.d)
}

// dial connects to a destination for a sandbox: from there, or from the node.
func (s *Server) dial(ctx context.Context, sb *sandbox, d *destination) (net.Conn, error) {
	if d.onNode() {
		return d.dial(ctx, fromNode)
	}
	return d.dial(ctx, func(ctx context.Context, at netip.AddrPort) (net.Conn, error) {
		return s.config.Shims.Dial(ctx, sb.id, at)
	})
}

// connect opens a new session for a sandbox.
func (s *Server) connect(ctx context.Context, sb *sandbox, d *destination, start session.Start) (waiting, error) {
	return s.open(ctx, d, sb.Function, start, func(ctx context.Context) (net.Conn, error) { return s.dial(ctx, sb, d) })
}

// fill opens a session that no sandbox has asked for yet.
func (s *Server) fill(ctx context.Context, k pool.Key) (waiting, error) {
	d, err := s.list.get(k.Destination, k.Namespace)
	if err != nil {
		return waiting{}, err
	}
	dial := func(ctx context.Context) (net.Conn, error) { return d.dial(ctx, fromNode) }
	w, err := s.open(ctx, d, k.Function, session.Start(k.Start), dial)
	if err == nil && w.session.Start == session.Bare {
		d.expires(w.conn)
	}
	return w, err
}

// bareIdle is how long a stream waits without a log-in: PostgreSQL ends it after its authentication_timeout, which is a minute
// by default, and the program's log-in is to take place before.
const bareIdle = 45 * time.Second

// expires has the watcher of a stream see its end in time.
func (d *destination) expires(c net.Conn) {
	if d.config.GetKind() == destinations.KindPostgres {
		_ = c.SetReadDeadline(time.Now().Add(bareIdle)) // one that cannot be set is that of a closed connection
	}
}

// open opens a session for a function.
func (s *Server) open(ctx context.Context, d *destination, function string, start session.Start, dial session.Dial) (waiting, error) {
	var p session.Protocol = session.Raw{}
	if start != session.Bare {
		var secured *tls.Config
		var err error
		dial, secured = ktls.Prepare(dial, d.tls)
		if p, err = d.protocol(secured, false); err != nil {
			return waiting{}, err
		}
	}
	opened, err := p.Open(ctx, dial, start)
	if start != session.Bare && d.denials.note(function, err, time.Now()) {
		s.denied(d, function, err)
	}
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) && !ofTheProgram(err) { // else nobody waits for it any more
		d.note(err)
	}
	if err != nil {
		return waiting{}, err
	}
	w := waiting{conn: opened.Conn, session: opened}
	if d.raw() {
		w.waited = func(lost bool) { s.waited(d, lost) }
	}
	return w, nil
}

// ofTheProgram tells whether a server refuses what a program's driver asks for, and not the destination.
func ofTheProgram(err error) bool {
	refused, is := errors.AsType[*session.Refusal](err)
	return is && !refused.Denied() && !refused.Full()
}

// failed notes that a connection could not be made before somebody asked.
func (s *Server) failed(k pool.Key, err error) {
	s.config.Metrics.fallback(k.Destination, reasonFailed)
	s.config.Log.Warn("no connection can be made in advance", "destination", k.Destination, "function", k.Function, "error", err)
}

// raw tells whether a program gets the stream as it is, and says what it will.
func (d *destination) raw() bool {
	return d.config.GetKind() == destinations.KindTCP || d.config.GetKind() == destinations.KindTLS
}
