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
	// connectionsMost is how many connections to one destination a sandbox may have in the daemon's hands. Further ones wait
	// until one is closed.
	connectionsMost = 256
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
	s.background.Go(func() { s.accept(sb, streams, func(c net.Conn) { s.serve(sb, name, c, false) }) })
	s.background.Go(func() { s.accept(sb, handing, func(c net.Conn) { s.hand(sb, name, c) }) })
	return d, nil
}

func (d *door) socket(name string) (net.Listener, error) {
	if name == "" {
		return nil, errors.New("this node does not know the destination's kind")
	}
	l, err := serve.UnixForAll(fmt.Sprintf("/proc/self/fd/%d/%s", d.dir.Fd(), name))()
	if err != nil {
		return nil, err
	}
	return serve.Limit(l, serve.Crowd{All: connectionsMost}), nil
}

func (d *door) close() {
	_ = d.dir.Close() // it only names the directory
	_ = d.root.Close()
}

// accept serves a sandbox's programs one by one, until the listener is closed. do closes the connection.
func (s *Server) accept(sb *sandbox, l net.Listener, do func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			if sb.ctx.Err() == nil {
				s.config.Log.Error("a sandbox's connections are not served any more", "instance", sb.id, "error", err)
			}
			return
		}
		s.background.Go(func() { do(c) })
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

// descriptor returns a stream to a destination: of the kind tcp the connection itself if one waits, else the other end of
// one that the daemon answers on as it does on the socket.
func (s *Server) descriptor(sb *sandbox, name string) (*os.File, error) {
	_, d, err := s.find(sb.id, name)
	if err != nil {
		return nil, err
	}
	none := d.config.GetKind() == destinations.KindTCP
	if none {
		if f := s.itself(sb, name, d); f != nil {
			return f, nil
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	theirs, own := os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name)
	c, err := net.FileConn(own)
	_ = own.Close() // the connection has a copy
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	s.background.Go(func() { s.serve(sb, name, c, none) })
	return theirs, nil
}

// itself returns a connection that waits on the node, as it is; nil: none does.
func (s *Server) itself(sb *sandbox, name string, d *destination) *os.File {
	began := time.Now()
	w, ok := s.waits(sb, name, d)
	if !ok {
		return nil
	}
	defer w.Close() // the program has its own
	c, is := w.conn.(*net.TCPConn)
	if !is {
		return nil
	}
	f, err := c.File()
	if err != nil {
		return nil
	}
	s.config.Metrics.handed(name, wayPool, began)
	return f
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
