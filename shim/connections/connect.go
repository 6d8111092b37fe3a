package connections

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/session"
)

// Connect answers a program that connects to an address of a destination; nil: it connects by itself. What is returned takes
// the other end of its connection, which is of its own network namespace, or nil if there is none. A program whose stream the
// daemon does not answer connects by itself if none waits: then nothing is gained, and it hears whether the server is there.
func (s *Server) Connect(ctx context.Context, id string, at netip.AddrPort, ahead bool) (take func(net.Conn), err error) {
	sb, name, d := s.at(id, at)
	if d == nil || ahead && d.raw() && !s.expects(ctx, sb, name, d) {
		return nil, nil
	}
	leave, err := s.room(sb, name)
	if err != nil {
		return nil, err
	}
	serve, drop := func(program net.Conn) { s.serve(sb, name, program) }, func() {}
	switch {
	case d.raw() && ahead:
		serve = func(program net.Conn) { s.carry(sb, name, d, program) }
	case d.raw():
		began, c := time.Now(), &caller{server: s, sb: sb, name: name, d: d}
		w, ok := c.waits(ctx, session.Bare)
		if !ok {
			leave()
			return nil, nil
		}
		serve = func(program net.Conn) {
			s.tell(sb, name, c.way, began, nil)
			s.pass(sb, name, program, w.conn)
		}
		drop = func() { _ = w.conn.Close() } // nothing was said by it
	}
	return func(program net.Conn) {
		if program == nil {
			drop()
			leave()
			return
		}
		s.background.Go(func() {
			defer leave()
			serve(program)
		})
	}, nil
}

// expects tells whether a stream will wait for a sandbox's first program, as far as can be foreseen: it counts as unused, and is
// watched, until that connects. One that is made for the sandbox is waited for.
func (s *Server) expects(ctx context.Context, sb *sandbox, name string, d *destination) bool {
	if d.onNode() {
		c := &caller{sb: sb, name: name}
		return s.pool.Waits(c.key(session.Bare))
	}
	sb.mu.Lock()
	a := sb.aheads[name]
	sb.mu.Unlock()
	if a == nil {
		return false
	}
	select {
	case <-a.there:
		return a.held != nil
	case <-ctx.Done():
		return false
	}
}

// carry has a program's stream joined with one that waits. If that is lost since it was foreseen there is a fresh one.
func (s *Server) carry(sb *sandbox, name string, d *destination, program net.Conn) {
	began, c := time.Now(), &caller{server: s, sb: sb, name: name, d: d}
	w, err := c.take(sb.ctx, session.Bare)
	s.tell(sb, name, c.way, began, err)
	if err != nil {
		s.config.Metrics.fallback(name, reasonFailed)
		abort(program) // as a server does that has gone
		return
	}
	s.pass(sb, name, program, w.conn)
}

// at finds the destination at an address that a sandbox is connected to by connect(2); nil: none is.
func (s *Server) at(id string, at netip.AddrPort) (*sandbox, string, *destination) {
	sb := s.known(id)
	if sb == nil || sb.By != filterapi.ByConnect {
		return nil, "", nil
	}
	for _, name := range sb.Destinations {
		if d, err := s.list.get(name, sb.namespace); err == nil && d.has(at) {
			return sb, name, d
		}
	}
	return nil, "", nil
}

// has tells whether a destination is at the address, as far as the node knows.
func (d *destination) has(at netip.AddrPort) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.at[at.Addr().Unmap()]
	return is && at.Port() == d.port
}

// locate finds out where a sandbox's destinations are, and tells its shim.
func (s *Server) locate(sb *sandbox) {
	s.target(sb) // as far as that is known
	var others bool
	for _, name := range sb.Destinations {
		d, err := s.list.get(name, sb.namespace)
		if err != nil {
			continue
		}
		seen, _ := d.look(sb.ctx, true) // what is wrong is told of by Watch
		if others = others || seen != same; seen == renewed {
			s.renew(name)
		}
	}
	if others {
		s.targetAll()
	}
}

// target tells the shim of a sandbox which addresses its programs' connections are asked about for.
func (s *Server) target(sb *sandbox) {
	var all []netip.AddrPort
	for _, name := range sb.Destinations {
		if d, err := s.list.get(name, sb.namespace); err == nil {
			all = append(all, d.where()...)
		}
	}
	s.config.Shims.Targets(sb.id, all)
}

// targetAll does so for all sandboxes, after addresses have changed.
func (s *Server) targetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		if sb.By == filterapi.ByConnect {
			s.target(sb)
		}
	}
}

// Rekeyed hears that a program's connection has ended because the server changed its TLS keys.
func (s *Server) Rekeyed() { s.config.Metrics.rekeyed.Inc() }

// Lapse hears that a shim cannot ask about the connections of a sandbox's programs.
func (s *Server) Lapse(id, reason, why string) {
	sb := s.known(id)
	if sb == nil {
		return
	}
	s.config.Metrics.fallback("", reasonConnect)
	s.config.Event(&nodeapi.Event{Function: sb.Function, Reason: reason, Field: filterapi.AnnotationConnectionsBy,
		Message: fmt.Sprintf("its programs connect by themselves: %s; use the sockets in /headstart/socket", why)})
}
