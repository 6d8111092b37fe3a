package streams

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/ktls/plaintext"
)

// stream is a connection whose two directions end one by one.
type stream interface {
	net.Conn
	CloseWrite() error
}

// streamOf is the connection of a descriptor, which stays the caller's.
func streamOf(f *os.File) (stream, error) {
	fd := number(f)
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	listens, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("the descriptor is no socket: %w", err)
	}
	if kind != unix.SOCK_STREAM || listens != 0 {
		return nil, errors.New("the descriptor is no stream")
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("the descriptor is no stream: %w", err)
	}
	if s, is := plaintext.Of(c).(stream); is {
		return s, nil
	}
	return nil, errors.Join(errors.New("the descriptor is no stream"), c.Close())
}

// pair is two streams of which each gets what comes from the other.
type pair [2]stream

// join copies until both directions are over, by splice(2) where both are sockets that Go knows. Nothing of it passes
// through the process. The error is why an end was no orderly one.
func (p pair) join() error {
	var copying sync.WaitGroup
	var errs [len(p)]error
	for i := range p {
		from, to := p[i], p[1-i]
		copying.Go(func() {
			_, err := io.Copy(to, from)
			if err == nil {
				err = to.CloseWrite()
			}
			if err != nil {
				p.abort() // the other one hears that it was no orderly end
			}
			errs[i] = err
		})
	}
	copying.Wait()
	p.close()
	return errors.Join(errs[:]...)
}

func (p pair) close() {
	for _, s := range p {
		_ = s.Close() // nothing is left to write
	}
}

// abort resets both.
func (p pair) abort() {
	for _, s := range p {
		if tcp, is := s.(interface{ SetLinger(seconds int) error }); is {
			_ = tcp.SetLinger(0)
		}
		_ = s.Close()
	}
}

// end has the pair end within a time: what is on its way arrives.
func (p pair) end(within time.Duration) {
	for _, s := range p {
		_ = s.SetDeadline(time.Now().Add(within)) // one that is closed has ended
	}
}
