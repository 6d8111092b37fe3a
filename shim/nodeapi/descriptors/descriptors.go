// Package descriptors hands open files of a node's daemon to its shims, which gRPC cannot carry:
// by a unix socket beside that of the gRPC. The daemon's other sockets for shims are served by the same means.
package descriptors

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Limit is how many descriptors a container may get. One message carries 253 at most
	// (SCM_MAX_FD, unix(7)).
	Limit = 16
	// Timeout bounds one hand-over, which takes less than a millisecond.
	Timeout = 2 * time.Second

	socketName = "descriptors.sock"
	// idLimit is longer than the id of any container, in bytes.
	idLimit = 256
)

// Path is the path of the socket, by that of the daemon's gRPC.
func Path(socket string) string { return filepath.Join(filepath.Dir(socket), socketName) }

// Fetch returns the n descriptors of a container, which are the caller's to close: all of them, or
// an error.
func Fetch(ctx context.Context, socket, container string, n int) (_ []*os.File, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connecting to the daemon: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })() // it only ends the wait
	c := conn.(*net.UnixConn)
	if _, err := c.Write([]byte(container)); err != nil {
		return nil, fmt.Errorf("asking for descriptors: %w", err)
	}
	if err := c.CloseWrite(); err != nil {
		return nil, fmt.Errorf("asking for descriptors: %w", err)
	}
	files, count, err := receive(c)
	if err == nil && (count != n || len(files) != n) {
		err = fmt.Errorf("%d descriptors, said to be %d, where %d were described", len(files), count, n)
	}
	for _, f := range files {
		err = errors.Join(err, checkKind(f))
	}
	if err != nil {
		CloseAll(files)
		return nil, err
	}
	return files, nil
}

// checkKind allows what a program reads and writes. From a directory it would get to all that is around
// that, and a device is the node's.
func checkKind(f *os.File) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return fmt.Errorf("looking at a descriptor: %w", err)
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK:
		return nil
	}
	return errors.New("a descriptor is neither a file nor a pipe nor a socket")
}

// receive also returns descriptors with an error.
func receive(c *net.UnixConn) (files []*os.File, count int, err error) {
	var said [2]byte // one more than there is to be
	control := make([]byte, unix.CmsgSpace(Limit*Size))
	n, controls, flags, _, err := c.ReadMsgUnix(said[:], control)
	if err != nil {
		return nil, 0, fmt.Errorf("receiving descriptors: %w", err)
	}
	files, err = Received(control[:controls])
	switch {
	case err != nil:
		return files, 0, fmt.Errorf("receiving descriptors: %w", err)
	case n != 1 || flags&unix.MSG_CTRUNC != 0:
		return files, 0, errors.New("receiving descriptors: not an answer of the protocol")
	}
	return files, int(said[0]), nil
}

// CloseAll closes files that were only handed on.
func CloseAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written to it here
	}
}

// Take returns the descriptors of a container. They are its caller's to close.
type Take func(container string) ([]*os.File, error)

// Serve returns what serves shims on a listener until ctx ends.
func Serve(ctx context.Context, take Take, log *slog.Logger) func(net.Listener) error {
	return Accept(ctx, log, func(_ context.Context, c *net.UnixConn) {
		if err := answer(c, take); err != nil {
			log.Warn("a container does not get its descriptors", "error", err)
		}
	})
}

func answer(c *net.UnixConn, take Take) error {
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return fmt.Errorf("bounding a hand-over: %w", err)
	}
	id, err := io.ReadAll(io.LimitReader(c, idLimit))
	if err != nil {
		return fmt.Errorf("reading which container it is: %w", err)
	}
	files, err := take(string(id))
	if err != nil {
		return err
	}
	defer CloseAll(files)
	if len(files) == 0 || len(files) > Limit {
		return fmt.Errorf("%d descriptors for container %q", len(files), id)
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if _, _, err := c.WriteMsgUnix([]byte{byte(len(fds))}, unix.UnixRights(fds...), nil); err != nil {
		return fmt.Errorf("handing descriptors over: %w", err)
	}
	return nil
}
