package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unheardMost is how often in a row a daemon may end a connection with a directory, and not say that it takes it: then
// that is an earlier version's, which takes the listener alone. One that ends may do so once or twice.
const unheardMost = 3

// Tests shorten both.
var (
	// retry paces the search for a daemon: one that is replaced is away for less than a second.
	retry = 200 * time.Millisecond
	// patience is how long connections wait for a daemon that is away, longer than its restart takes. Later ones are
	// closed at once: the program hears that, and its SDK tries again.
	patience = 10 * time.Second
)

// Keep has the daemon at a socket serve a listener, and the one after that, until ctx ends. Connections wait meanwhile.
func Keep(ctx context.Context, socket string, o Offer, l *net.TCPListener) {
	outputs, unheard := o.Output, 0
	for lost := time.Now(); ctx.Err() == nil; {
		if o.Output = outputs; unheard == unheardMost {
			o.Output, unheard = nil, 0
		}
		conn, err := hand(ctx, socket, o, l)
		if err == nil {
			found := time.Now()
			heard := await(ctx, conn)
			if time.Since(found) >= retry { // a daemon that refuses the listener ends the connection at once
				lost = time.Now()
			}
			if unheard++; heard || o.Output == nil {
				unheard = 0
			}
		}
		next := time.Now().Add(retry)
		if time.Since(lost) > patience {
			refuse(ctx, l, next)
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
		}
	}
}

// Tell has the daemon hear of a container that goes without an endpoint.
func Tell(ctx context.Context, socket string, o Offer) error {
	conn, err := hand(ctx, socket, o, nil)
	if err != nil {
		return err
	}
	return conn.Close()
}

// hand hands the offer over. The daemon serves the listener as long as the connection that is returned stays.
func hand(ctx context.Context, socket string, o Offer, l *net.TCPListener) (_ *net.UnixConn, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to the daemon: %w", err)
	}
	c := conn.(*net.UnixConn)
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	said, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("offering an endpoint: %w", err)
	}
	if l == nil {
		_, err = c.Write(said)
		return c, err
	}
	with := []syscall.Conn{l}
	if o.Output != nil {
		with = append(with, o.Output)
	}
	err = opened(with, nil, func(fds []int) error {
		_, _, err := c.WriteMsgUnix(said, unix.UnixRights(fds...), nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("offering an endpoint: %w", err)
	}
	return c, nil
}

// opened calls do with the descriptors of all, none of which is closed meanwhile, after those that it is given.
func opened(all []syscall.Conn, fds []int, do func(fds []int) error) error {
	if len(all) == 0 {
		return do(fds)
	}
	raw, err := all[0].SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = opened(all[1:], append(fds, int(fd)), do) })
	return errors.Join(err, failed)
}

// await waits until the daemon has ended the connection, or ctx has. heard: it has taken a directory.
func await(ctx context.Context, c *net.UnixConn) (heard bool) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	n, _ := c.Read(make([]byte, 1))
	if n > 0 {
		_, _ = c.Read(make([]byte, 1)) // it says no more
	}
	return n > 0
}

// refuse closes the connections that wait, and come, for a while.
func refuse(ctx context.Context, l *net.TCPListener, until time.Time) {
	defer context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })()
	if l.SetDeadline(until) != nil {
		return // it is closed
	}
	for {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		_ = c.SetLinger(0) // what the program has sent is lost, and it hears so
		_ = c.Close()
	}
}
