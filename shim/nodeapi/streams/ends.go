package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	// endsTimeout bounds the making of a connection on the loopback, which takes less than a millisecond.
	endsTimeout = time.Second
	// strangersLimit is how many connections of others are taken from the listener before it is given up.
	strangersLimit = 16
	// spareLimit is how many connections are kept ready, so that a program does not wait for them.
	spareLimit = 2
)

// Ends are those of one connection within a sandbox's network. A program can disconnect its end, and connect or
// listen by it again: it does so in its own network. The program's end was connected without blocking, and nobody has
// asked the kernel since how that ended.
type Ends struct{ Program, Daemon *os.File }

func (e Ends) close() { descriptors.CloseAll([]*os.File{e.Program, e.Daemon}) }

// Connected makes a connection within a sandbox's network.
type Connected func(context.Context) (Ends, error)

// EndsIn returns what connects on the loopback of a network namespace, by the path of that.
func EndsIn(namespace string) Connected {
	return func(ctx context.Context) (e Ends, err error) {
		ctx, cancel := context.WithTimeout(ctx, endsTimeout)
		defer cancel()
		if err := nsthread.Run(namespace, func() (err error) { e, err = connected(ctx); return err }); err != nil {
			return Ends{}, fmt.Errorf("connecting on the sandbox's loopback: %w", err)
		}
		return e, nil
	}
}

// connected connects on the loopback of the thread's network.
func connected(ctx context.Context) (e Ends, err error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return e, err
	}
	l := listener.(*net.TCPListener)
	defer l.Close()
	end, _ := ctx.Deadline()
	if err := l.SetDeadline(end); err != nil {
		return e, err
	}
	program, err := (&net.Dialer{}).DialContext(ctx, "tcp4", l.Addr().String())
	if err != nil {
		return e, err
	}
	defer program.Close()
	for range strangersLimit {
		daemon, err := l.AcceptTCP()
		if err != nil {
			return e, err
		}
		if daemon.RemoteAddr().String() != program.LocalAddr().String() {
			_ = daemon.Close() // a program's, which tries all ports
			continue
		}
		defer daemon.Close()
		if e.Program, err = fileOf(program); err != nil {
			return e, err
		}
		if e.Daemon, err = fileOf(daemon); err != nil {
			e.close()
			return Ends{}, err
		}
		return e, nil
	}
	return e, errors.New("others connect to the listener")
}

// ends returns a connection that is ready, or makes one.
func (s *Shim) ends(ctx context.Context) (e Ends, err error) {
	s.mu.Lock()
	last := len(s.spare) - 1
	if last >= 0 {
		e, s.spare = s.spare[last], s.spare[:last]
	}
	s.fill()
	s.mu.Unlock()
	if last < 0 {
		return s.connected(ctx)
	}
	return e, nil
}

// fill makes connections ready in the background; the caller holds mu. If none can be made, the next question tries
// again.
func (s *Shim) fill() {
	if s.filling || s.ended {
		return
	}
	s.filling = true
	s.joined.Go(func() {
		for s.lacks() {
			e, err := s.connected(context.Background())
			s.mu.Lock()
			if err == nil {
				s.spare = append(s.spare, e)
			}
			s.filling = err == nil
			s.mu.Unlock()
		}
	})
}

// lacks tells whether another connection is to be made ready. With the first no the filling is over.
func (s *Shim) lacks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.filling = s.filling && !s.ended && len(s.spare) < spareLimit
	return s.filling
}
