package connections

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/ktls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// joinTimeout is how long a stream waits for its shim, which looks for a new daemon 5 times a second.
const joinTimeout = time.Second

// serve answers a program's start-up, and has its connection joined with the server's. It closes both.
func (s *Server) serve(sb *sandbox, name string, client net.Conn) {
	_, d, err := s.find(sb.id, name)
	if err == nil && !d.raw() && !begins(sb.ctx, client) {
		_ = client.Close() // it has left
		return
	}
	if err == nil && sb.Buffered {
		s.buffer(sb, name, d, client)
		return
	}
	began := time.Now()
	server, way, err := s.meet(sb, name, client)
	if err != nil || server == nil {
		if err != nil {
			s.tell(sb, name, way, began, err)
		}
		_ = client.Close() // it has been told why
		return
	}
	s.tell(sb, name, way, began, nil)
	s.pass(sb, name, client, server)
}

// pass has the streams of a program and a server joined, by the sandbox's shim if that can be. It closes both.
func (s *Server) pass(sb *sandbox, name string, client, server net.Conn) {
	defer client.Close()
	server, err := ktls.Kernel(server) // of which the TLS connection is not to be closed: the kernel would encrypt its alert
	if err != nil {
		s.config.Log.Warn("a program's connection ends", "instance", sb.id, "destination", name, "error", err)
		return
	}
	defer server.Close()
	if _, secured := server.(*tls.Conn); !secured {
		err := s.join(sb, inner(client), server)
		if err == nil || errors.Is(err, streams.ErrUnclear) {
			return // the shim has both, or nobody else may
		}
		s.config.Metrics.fallback(name, reasonNoShim)
	}
	s.pumped.Add(1)
	defer s.pumped.Add(-1)
	pump(sb.ctx, client, server)
}

// join has the sandbox's shim join two streams.
func (s *Server) join(sb *sandbox, client, server net.Conn) error {
	ctx, cancel := context.WithTimeout(sb.ctx, joinTimeout)
	defer cancel()
	return s.config.Shims.Join(ctx, sb.id, client, server)
}

// meet returns what is to be joined with a program's connection; nil: nothing is.
func (s *Server) meet(sb *sandbox, name string, client net.Conn) (server net.Conn, way string, err error) {
	_, d, err := s.find(sb.id, name)
	if err != nil {
		return nil, "", err
	}
	p, err := d.protocol(d.tls, sb.By == filterapi.ByConnect)
	if err != nil {
		d.note(err)
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(sb.ctx, startTimeout)
	defer cancel()
	c := &caller{server: s, sb: sb, name: name, d: d}
	opened, err := p.Accept(ctx, client, c)
	if err != nil || opened == nil {
		return nil, c.way, err
	}
	c.took(opened.Start)
	return opened.Conn, c.way, nil
}

// begins waits for the first byte of a program, which may use what it has inherited much later; false: it has left.
func begins(ctx context.Context, client net.Conn) bool {
	raw, err := inner(client).(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	defer until(ctx, client)()
	begun := false
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		begun = n > 0
		return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
	})
	return err == nil && begun
}

// until has a connection's reads end with ctx, until stop.
func until(ctx context.Context, c net.Conn) (stop func()) {
	ended := make(chan struct{})
	running := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = c.SetReadDeadline(past) // one that cannot be set is that of a closed connection
	})
	return func() {
		if !running() {
			<-ended
		}
	}
}

// tell notes a hand-over in metrics, and in a span that is linked to the request that the sandbox works on, or else to its first.
func (s *Server) tell(sb *sandbox, name, way string, began time.Time, err error) {
	if err == nil {
		s.config.Metrics.handed(name, way, began)
	}
	ended := time.Now()
	record := func(traceparent string) { s.record(sb, name, way, began, ended, err, traceparent) }
	if of := s.config.Traceparent(sb.id); of != "" || !sb.first.hold(record) {
		record(of)
	}
}

func (s *Server) record(sb *sandbox, name, way string, began, ended time.Time, err error, traceparent string) {
	options := []trace.SpanStartOption{trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindClient), trace.WithNewRoot(),
		trace.WithAttributes(tracing.ConnectionDestination.String(name), tracing.ConnectionWay.String(way),
			attribute.String("faas.name", sb.Function))}
	if parent := trace.SpanContextFromContext(tracing.Continue(context.Background(), traceparent)); parent.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	_, span := tracer.Start(context.Background(), tracing.Connection, options...)
	defer span.End(trace.WithTimestamp(ended))
	if err != nil {
		span.SetStatus(codes.Error, reasonFailed)
		if !errors.Is(err, context.Canceled) {
			s.config.Log.Debug("a program is not connected", "instance", sb.id, "destination", name, "error", err)
		}
	}
}
