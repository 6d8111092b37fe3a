package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// connection is the key of a request's connection in its context.
type connection struct{}

// WithConnection is the ConnContext of a server whose handlers use OnLeft. Those of HTTP have it.
func WithConnection(ctx context.Context, c net.Conn) context.Context {
	for {
		switch of := c.(type) {
		case syscall.Conn:
			raw, err := of.SyscallConn()
			if err != nil { // it is closed already
				return ctx
			}
			return context.WithValue(ctx, connection{}, raw)
		case interface{ NetConn() net.Conn }:
			c = of.NetConn()
		default:
			return ctx
		}
	}
}

// OnLeft calls left when the client of a request of HTTP/1.1, by its context, has ended the
// connection. net/http sees that only behind a body's end, and so not at all of one that
// nobody reads yet. When forget has returned, left is not called any more. Of a request that came
// by no connection nothing is watched.
func OnLeft(request context.Context, left func()) (forget func()) {
	raw, known := request.Value(connection{}).(syscall.RawConn)
	if !known {
		return func() {}
	}
	end, err := watchEnd(raw)
	if err != nil { // of a connection that is closed, or without a descriptor to spare: as without it
		return func() {}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if awaitEnd(end) {
			left()
		}
	}()
	return func() {
		_ = end.Close() // it only watches
		<-ended
	}
}

// watchEnd returns an epoll instance (epoll(7)) that becomes readable when the other side of a
// connection has ended it, and not before: by what the connection brings nobody is woken.
func watchEnd(c syscall.RawConn) (*os.File, error) {
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watching a connection: %w", err)
	}
	failed := syscall.SetNonblock(poll, true) // for os.NewFile, which waits without a thread then
	if failed == nil {
		err = c.Control(func(fd uintptr) {
			failed = syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, int(fd), &syscall.EpollEvent{Events: syscall.EPOLLRDHUP})
		})
	}
	if err := errors.Join(err, failed); err != nil {
		return nil, errors.Join(fmt.Errorf("watching a connection: %w", err), syscall.Close(poll))
	}
	return os.NewFile(uintptr(poll), "epoll"), nil
}

// awaitEnd tells whether the connection has ended, or else that the watch has.
func awaitEnd(poll *os.File) (ended bool) {
	raw, err := poll.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Read(func(fd uintptr) bool { // its error is that of the watch's end
		var events [1]syscall.EpollEvent
		n, err := syscall.EpollWait(int(fd), events[:], 0)
		ended = n > 0
		return ended || err != nil && err != syscall.EINTR
	})
	return ended
}
