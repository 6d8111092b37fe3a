package descriptors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Size is that of a descriptor in a control message, in bytes.
	Size = 4

	// acceptPause follows a connection that cannot be taken, and doubles up to acceptPauseMost: a listener that fails
	// at once would keep a core busy.
	acceptPause     = 50 * time.Millisecond
	acceptPauseMost = time.Second
)

// Accept returns what serves the shims that come to a unix socket's listener, each by a call of do, until ctx ends. It
// closes their connections when do returns. The context of do ends when no more shims are taken.
func Accept(ctx context.Context, log *slog.Logger, do func(context.Context, *net.UnixConn)) func(net.Listener) error {
	return func(l net.Listener) error {
		defer l.Close()
		var serving sync.WaitGroup
		defer serving.Wait()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // else the wait is for shims, which may keep their connections
		closed := make(chan struct{})
		defer context.AfterFunc(ctx, func() {
			defer close(closed)
			_ = l.Close() // Accept says so
		})()
		pause := acceptPause
		for {
			conn, err := l.Accept()
			switch {
			case err == nil:
				pause = acceptPause
			case ctx.Err() != nil:
				<-closed
				return nil
			case passes(err):
				log.Warn("no connection of a shim can be taken now", "error", err)
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
				pause = min(2*pause, acceptPauseMost)
				continue
			default:
				return fmt.Errorf("taking connections of shims: %w", err)
			}
			serving.Go(func() {
				defer conn.Close() // the listener may count it
				do(ctx, unixOf(conn))
			})
		}
	}
}

// passes tells whether a listener's error is of one connection, or until the process or the machine has descriptors
// again.
func passes(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ECONNABORTED)
}

// unixOf is the connection of a listener, which may count it.
func unixOf(c net.Conn) *net.UnixConn {
	if counted, is := c.(interface{ NetConn() net.Conn }); is {
		return unixOf(counted.NetConn())
	}
	return c.(*net.UnixConn)
}

// Received returns the descriptors in a message's control part, also beside an error.
func Received(control []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		fds, invalid := unix.ParseUnixRights(&m)
		err = errors.Join(err, invalid)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "descriptor"))
		}
	}
	return files, err
}
