// Package sdk gives a Go program the connections that Headstart has for it. It needs the standard library only.
package sdk

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// root is where a sandbox has its sockets. Tests have their own.
var root = "/headstart/socket"

const (
	first        = 3           // the first inherited descriptor
	fetchTimeout = time.Second // bounds the question for a connection, which is there or not
)

var (
	label = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	used  sync.Map // the names of inherited descriptors that the program has taken
)

// Connect returns a connection to the destination of that name: the one that the program has inherited, another one of
// Headstart's, or, where Headstart has none, a new one to a TCP address.
func Connect(ctx context.Context, name, address string) (net.Conn, error) {
	for _, get := range []func(context.Context, string) *os.File{inherited, fetch} {
		f := get(ctx, name)
		if f == nil {
			continue
		}
		c, err := net.FileConn(f)
		_ = f.Close() // the connection has a copy
		if err == nil && alive(c) {
			return c, nil
		}
		if err == nil {
			_ = c.Close()
		}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func inherited(_ context.Context, name string) *os.File {
	i := slices.Index(strings.Split(os.Getenv("HEADSTART_DESCRIPTORS"), ":"), name)
	if _, taken := used.LoadOrStore(name, true); taken || i < 0 || name == "" {
		return nil
	}
	syscall.CloseOnExec(first + i)
	return os.NewFile(uintptr(first+i), name)
}

func fetch(ctx context.Context, name string) *os.File {
	if !label.MatchString(name) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(root, name, "descriptor.sock"))
	if err != nil {
		return nil
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	control := make([]byte, syscall.CmsgLen(4)) // one descriptor
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), control)
	messages, invalid := syscall.ParseSocketControlMessage(control[:n])
	if err != nil || invalid != nil || len(messages) != 1 {
		return nil
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), name)
}

// alive tells whether the other side has not ended a connection. What it has said is not read.
func alive(c net.Conn) (is bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	if raw, err := s.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // is stays false if it is closed
			n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			is = err == nil && n > 0 || err == syscall.EAGAIN
		})
	}
	return is
}
