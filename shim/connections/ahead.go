package connections

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/pool"
	"github.com/headstart-mesh/headstart/shim/session"
)

const (
	// aheadTimeout is how long a connection is tried that a sandbox will want: a sidecar takes seconds until it takes any.
	aheadTimeout = 30 * time.Second
	// aheadPause is the first pause between tries, which doubles until aheadPauseMost.
	aheadPause     = 50 * time.Millisecond
	aheadPauseMost = time.Second
	// aheadIdle is how long one waits for its program, which may never ask.
	aheadIdle = 2 * time.Minute
)

// ahead is a connection that is made for one sandbox, in its network namespace, while its program starts.
type ahead struct {
	start session.Start       // what the program is expected to ask for
	there chan struct{}       // closed when it is there, or will not be
	held  *pool.Held[waiting] // nil: it could not be made
	err   error               // why not
}

// prepare has a connection made for a sandbox that starts, if its own are to be made in there, and its first request awaited.
func (s *Server) prepare(sb *sandbox, name string, d *destination) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.ctx.Err() != nil {
		return
	}
	if s.awaitFirst(sb); d.onNode() || d.speaksFirst() || sb.aheads[name] != nil {
		return
	}
	a := &ahead{start: s.expected(sb, name, d), there: make(chan struct{})}
	sb.aheads[name] = a
	s.background.Go(func() {
		s.tryAhead(sb, name, d, a)
		close(a.there)
		idle := time.NewTimer(aheadIdle)
		defer idle.Stop()
		select {
		case <-idle.C:
		case <-sb.ctx.Done():
		}
		if sb.takeAhead(name, a) && a.held != nil {
			a.held.Drop()
		}
	})
}

// tryAhead tries until it is made, or not wanted any more.
func (s *Server) tryAhead(sb *sandbox, name string, d *destination, a *ahead) {
	ctx, cancel := context.WithTimeout(sb.ctx, aheadTimeout)
	defer cancel()
	for pause := aheadPause; ; pause = min(2*pause, aheadPauseMost) {
		var w waiting
		if w, a.err = s.openAhead(ctx, sb, d, a.start); a.err == nil {
			a.held = pool.Hold(w, func() {})
			return
		}
		if _, is := errors.AsType[*session.Refusal](a.err); is { // asking again changes nothing, or makes it worse
			return
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return
		}
	}
}

// expected is what the function's driver has asked for last. Without a driver it is a stream alone, on which whatever is asked
// for can be logged in.
func (s *Server) expected(sb *sandbox, name string, d *destination) session.Start {
	start, known := s.starts.last(sb.Function, name)
	switch {
	case d.raw() && sb.By != filterapi.ByConnect:
		return ""
	case d.raw() || !known:
		return session.Bare
	}
	return start
}

// openAhead logs in, if that is expected and not denied. Otherwise it is the program's own log-in that the server hears.
func (s *Server) openAhead(ctx context.Context, sb *sandbox, d *destination, start session.Start) (waiting, error) {
	if start != session.Bare {
		if leave := d.denials.enter(time.Now()); leave != nil {
			defer leave()
			return s.connect(ctx, sb, d, start)
		}
	}
	conn, err := s.dial(ctx, sb, d)
	if err == nil {
		d.expires(conn)
	}
	return waiting{conn: conn}, err
}

// drop closes it, as soon as it is there.
func (a *ahead) drop() {
	if <-a.there; a.held != nil {
		a.held.Drop()
	}
}

// takeAhead takes a connection out that was made for a sandbox, if nobody else has.
func (sb *sandbox) takeAhead(name string, a *ahead) bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.aheads[name] != a {
		return false
	}
	delete(sb.aheads, name)
	return true
}

// ahead takes the connection that was made for a sandbox, and waits for it if it is being made; false: there is none. A bare stream
// takes no session: drivers that find no TLS at the server connect once more, and that one is logged in.
func (s *Server) ahead(ctx context.Context, sb *sandbox, name string, start session.Start) (waiting, bool) {
	sb.mu.Lock()
	a := sb.aheads[name]
	sb.mu.Unlock()
	if a == nil || start == session.Bare && a.start != session.Bare || !sb.takeAhead(name, a) {
		return waiting{}, false
	}
	select {
	case <-a.there:
	case <-ctx.Done():
		s.background.Go(a.drop)
		return waiting{}, false
	}
	if a.held == nil {
		return waiting{}, false
	}
	w, err := a.held.Take()
	return w, err == nil
}
