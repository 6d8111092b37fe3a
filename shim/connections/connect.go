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
// the other end of its connection, which is of its own network namespace, or nil if there is none. Ahead of a program no
// connection to a server is used: those wait in the pool.
func (s *Server) Connect(ctx context.Context, id string, at netip.AddrPort, ahead bool) (take func(net.Conn), err error) {
	sb, name, d := s.at(id, at)
	if d == nil || ahead && d.raw() {
		return nil, nil
	}
	leave, err := s.room(sb, name)
	if err != nil {
		return nil, err
	}
	serve, drop := func(program net.Conn) { s.serve(sb, name, program) }, func() {}
	if d.raw() {
		c := &caller{server: s, sb: sb, name: name, d: d}
		w, ok := c.waits(ctx, session.Bare)
		if !ok { // then nothing is gained, and the program hears by itself whether the server is there
			leave()
			return nil, nil
		}
		began := time.Now()
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
