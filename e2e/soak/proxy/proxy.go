// Package proxy stands between a daemon and its stores, and does to their answers what goes
// wrong with answers: they stall, break off, end early, or are others.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Fault is what happens to one answer. Its zero value is nothing.
type Fault struct {
	Kind Kind
	// At is the byte of the answer's body before which it happens. In an answer that is
	// shorter it does not happen.
	At int64
	// Status is that of Answers.
	Status int
	// Do is what Meanwhile does.
	Do func()
}

// Kind is a kind of fault.
type Kind int

// The kinds of faults.
const (
	None      Kind = iota
	Stalls         // nothing more comes, until the other side closes the connection
	Resets         // the connection is reset
	Truncates      // the connection ends
	Answers        // the store is not asked; the answer is a Status (HTTP only)
	Meanwhile      // Do runs, and then the answer goes on
)

// dialTimeout is for servers on the same machine.
const dialTimeout = 5 * time.Second

// Server is a proxy. Its goroutines end with Close.
type Server struct {
	// Address is where it listens, host:port.
	Address string

	backend  string
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

func start(backend string, serve func(s *Server, client, store net.Conn)) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for clients of a store: %w", err)
	}
	s := &Server{Address: l.Addr().String(), backend: backend, listener: l, conns: map[net.Conn]bool{}}
	s.running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			s.running.Go(func() { s.connect(client, serve) })
		}
	})
	return s, nil
}

// connect serves one connection. A store that is away looks like it.
func (s *Server) connect(client net.Conn, serve func(s *Server, client, store net.Conn)) {
	defer client.Close()
	store, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(context.Background(), "tcp", s.backend)
	if err != nil {
		reset(client)
		return
	}
	defer store.Close()
	if !s.keep(client, store) {
		return
	}
	defer s.forget(client, store)
	serve(s, client, store)
}

func (s *Server) keep(conns ...net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		s.conns[c] = true
	}
	return !s.closed
}

func (s *Server) forget(conns ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conns {
		delete(s.conns, c)
	}
}

// Hang ends all connections that there are.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close() // whoever uses it sees it
	}
}

// Close ends all connections and waits for it.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.Hang()
	s.running.Wait()
	return err
}

// errOver ends a connection by a fault.
var errOver = errors.New("the fault has ended the connection")

// strike does what a fault does when its byte has come. Without an error the answer goes on.
func (f Fault) strike(client net.Conn) error {
	switch f.Kind {
	case Stalls:
		// The client has asked and sends nothing more, so this returns when it goes.
		_, _ = client.Read(make([]byte, 1))
		return errOver
	case Resets:
		reset(client)
		return errOver
	case Truncates:
		return errOver
	case Meanwhile:
		f.Do()
	}
	return nil
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // then it ends in good order, which is a fault as well
	}
	_ = c.Close()
}

// faulty writes an answer to the client, and has a fault strike at its byte.
type faulty struct {
	client  net.Conn
	fault   Fault
	written int64
}

func (f *faulty) Write(p []byte) (int, error) {
	if f.fault.Kind == None || f.written+int64(len(p)) <= f.fault.At {
		n, err := f.client.Write(p)
		f.written += int64(n)
		return n, err
	}
	before := max(f.fault.At-f.written, 0)
	n, err := f.client.Write(p[:before])
	f.written += int64(n)
	if err != nil {
		return n, err
	}
	fault := f.fault
	f.fault = Fault{}
	if err := fault.strike(f.client); err != nil {
		return n, err
	}
	m, err := f.client.Write(p[before:])
	f.written += int64(m)
	return n + m, err
}

var _ io.Writer = (*faulty)(nil)
