package connections

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

const (
	// connectionsMost is how many connections a sandbox may have in the daemon's hands: those whose start-up is not answered
	// yet, and those that pass the daemon. Further ones end at once.
	connectionsMost = 256
	// connectionsOfNode is how many all sandboxes of a node may have, which namespaces share: each has some 50 KiB.
	connectionsOfNode = 2048
	// acceptPause is how long a door stays closed when nothing can be opened.
	acceptPause = 100 * time.Millisecond
	// descriptorSocket hands descriptors out, one for each connection to it.
	descriptorSocket = "descriptor.sock"
	// handTimeout bounds the hand-over of a descriptor, which takes less than a millisecond.
	handTimeout = 2 * time.Second
)

// socketNames are what programs find a destination by, in the directory of the destination's name. libpq and all other
// drivers of PostgreSQL look for the port in the socket's name, and take 5432 if they are told none.
var socketNames = map[string]string{
	destinations.KindPostgres: ".s.PGSQL.5432", destinations.KindRedis: "redis.sock",
	destinations.KindTCP: "tcp.sock", destinations.KindTLS: "tls.sock",
}

// door is where a sandbox's programs ask for one destination.
type door struct {
	root *os.Root
	dir  *os.File // root's: a socket's address cannot hold the directory's whole path (unix(7))
}

// listen makes the sockets of a destination in root, in place of those of an earlier process, and serves them until the
// sandbox ends.
func (s *Server) listen(sb *sandbox, name, kind string, root *os.Root) (_ *door, err error) {
	dir, err := root.Open(".")
	if err != nil {
		_ = root.Close() // it was only read from
		return nil, err
	}
	d := &door{root, dir}
	streams, err := d.socket(socketNames[kind])
	var handing net.Listener
	if err == nil {
		if handing, err = d.socket(descriptorSocket); err != nil {
			err = errors.Join(err, streams.Close())
		}
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("making the sockets of a destination: %w", err)
	}
	context.AfterFunc(sb.ctx, func() {
		_ = streams.Close() // Accept says so
		_ = handing.Close()
		d.close()
	})
	s.background.Go(func() { s.accept(sb, name, streams, func(c net.Conn) { s.serve(sb, name, c) }) })
	s.background.Go(func() { s.accept(sb, name, handing, func(c net.Conn) { s.hand(sb, name, c) }) })
	return d, nil
}

func (d *door) socket(name string) (net.Listener, error) {
	if name == "" {
		return nil, errors.New("this node does not know the destination's kind")
	}
	return serve.UnixForAll(fmt.Sprintf("/proc/self/fd/%d/%s", d.dir.Fd(), name))()
}

func (d *door) close() {
	_ = d.dir.Close() // it only names the directory
	_ = d.root.Close()
}

// accept serves a sandbox's programs one by one, until the listener is closed. do closes the connection.
func (s *Server) accept(sb *sandbox, name string, l net.Listener, do func(net.Conn)) {
	for {
		c, err := l.Accept()
		switch {
		case sb.ctx.Err() != nil, errors.Is(err, net.ErrClosed):
			if err == nil {
				_ = c.Close() // nothing was said by it
			}
			return
		case err != nil: // the process has no descriptors left, for now
			s.config.Log.Warn("a sandbox's connections wait", "instance", sb.id, "error", err)
			select {
			case <-time.After(acceptPause):
			case <-sb.ctx.Done():
			}
			continue
		}
		leave, err := s.room(sb, name)
		if err != nil {
			s.config.Log.Debug("a program is not connected", "instance", sb.id, "destination", name, "error", err)
			_ = c.Close() // it hears that it has ended
			continue
		}
		s.background.Go(func() {
			defer leave()
			do(c)
		})
	}
}

// hand hands one descriptor out.
func (s *Server) hand(sb *sandbox, name string, c net.Conn) {
	defer c.Close()
	f, err := s.descriptor(sb, name)
	if err != nil {
		s.config.Log.Debug("a program gets no descriptor", "instance", sb.id, "destination", name, "error", err)
		return // the end of the connection says that there is none
	}
	defer f.Close() // the program has its own
	to, is := inner(c).(*net.UnixConn)
	if err := c.SetDeadline(time.Now().Add(handTimeout)); err != nil || !is {
		return
	}
	_, _, _ = to.WriteMsgUnix([]byte{1}, unix.UnixRights(int(f.Fd())), nil) // a program that has left needs none
}

// descriptor returns one end of a stream that the daemon answers on as it does on the socket. It waits for nothing: the shim
// that asks for a container's descriptors may be the one that a connection waits for. No connection of the daemon's own is
// handed out: a program could aim it elsewhere, from the daemon's network namespace (connect(2), AF_UNSPEC).
func (s *Server) descriptor(sb *sandbox, name string) (*os.File, error) {
	leave, err := s.room(sb, name)
	if err != nil {
		return nil, err
	}
	theirs, own, err := socketpair(name)
	if err != nil {
		leave()
		return nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	s.background.Go(func() {
		defer leave()
		s.serve(sb, name, own)
	})
	return theirs, nil
}

func socketpair(name string) (theirs *os.File, own net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs, ours := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	defer ours.Close() // the connection has a copy
	if own, err = net.FileConn(ours); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return theirs, own, nil
}

// room gives a program's connection a place, until leave is called.
func (s *Server) room(sb *sandbox, name string) (leave func(), err error) {
	if sb.open.Add(1) > connectionsMost {
		sb.open.Add(-1)
		s.config.Metrics.fallback(name, reasonFull)
		return nil, fmt.Errorf("the sandbox has %d connections in the daemon's hands", connectionsMost)
	}
	left, why := s.places.Try(sb.Function, "connections")
	if left == nil {
		sb.open.Add(-1)
		s.config.Metrics.fallback(name, reasonFull)
		return nil, errors.New(why)
	}
	return func() { left(); sb.open.Add(-1) }, nil
}

// inner is the connection that a listener counts.
func inner(c net.Conn) net.Conn {
	for {
		counted, is := c.(interface{ NetConn() net.Conn })
		if !is {
			return c
		}
		c = counted.NetConn()
	}
}
