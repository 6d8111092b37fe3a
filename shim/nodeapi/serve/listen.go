package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"github.com/headstart-mesh/headstart/shim/coalesce"
)

// Listen opens what a server takes connections from.
type Listen func() (net.Listener, error)

// Unix listens on a socket at path that only the process's own user may connect to
// (mode 0600). The socket that an earlier process left there is replaced, or taken over
// from one that still runs: there is no moment without one. Anything else at path is an
// error.
func Unix(path string) Listen { return unix("unix", path, 0o600, -1, false) }

// UnixPackets is Unix for messages with borders (SOCK_SEQPACKET).
func UnixPackets(path string) Listen { return unix("unixpacket", path, 0o600, -1, false) }

// UnixFor is Unix for another user, by its id. Below 0 it is the process's own. Connections that wait for a request of
// HTTP/1 stay when a process takes the socket over, too: it reads on.
func UnixFor(path string, uid int) Listen { return unix("unix", path, 0o600, uid, true) }

// UnixForAll is Unix for whoever gets to the path: its directory says who that is.
func UnixForAll(path string) Listen { return unix("unix", path, 0o666, -1, false) }

func unix(network, path string, mode fs.FileMode, uid int, keeps bool) Listen {
	return func() (net.Listener, error) {
		if err := checkSocket(path); err != nil {
			return nil, err
		}
		next := path + ".new"
		if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("removing a socket that was left: %w", err)
		}
		l, err := net.Listen(network, next)
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		u := &unixListener{path: path}
		if keeps {
			if u.keeping, err = keep(l, path, func() bool { return TakenOver(u) }); err != nil {
				return nil, errors.Join(err, l.Close())
			}
			l = u.keeping
		}
		u.Listener = Limit(l, Own)
		if err := u.show(next, mode, uid); err != nil {
			return nil, errors.Join(err, u.Listener.Close())
		}
		return u, nil
	}
}

// unixListener is there by its path until it is closed, or another has the path.
type unixListener struct {
	net.Listener
	path    string
	file    fs.FileInfo
	keeping *keeping // or nil
}

// show puts the socket in its place, when it is as it shall be.
func (u *unixListener) show(next string, mode fs.FileMode, uid int) (err error) {
	if err := os.Chmod(next, mode); err != nil {
		return fmt.Errorf("setting a socket's permissions: %w", err)
	}
	if uid >= 0 {
		if err := os.Lchown(next, uid, -1); err != nil {
			return fmt.Errorf("handing a socket to its user: %w", err)
		}
	}
	if u.file, err = os.Lstat(next); err != nil {
		return fmt.Errorf("looking at a socket: %w", err)
	}
	if err := os.Rename(next, u.path); err != nil {
		return fmt.Errorf("putting a socket in its place: %w", err)
	}
	return nil
}

// Close removes the socket, if it still is this one.
func (u *unixListener) Close() error {
	if !TakenOver(u) {
		_ = os.Remove(u.path) // whoever is next replaces it
	}
	return u.Listener.Close()
}

// TakenOver tells whether another process has the path of a listener of Unix, so that no
// new connections come to this one.
func TakenOver(l net.Listener) bool {
	u, is := l.(*unixListener)
	if !is {
		return false
	}
	now, err := os.Lstat(u.path)
	return err == nil && !os.SameFile(now, u.file)
}

func checkSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for an earlier socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("listening on %s: something else than a socket is there", path)
	}
	return nil
}

// TCP listens on address, which is host:port, for at most so many connections.
func TCP(address string, most Crowd) Listen {
	return func() (net.Listener, error) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		return Limit(l, most), nil
	}
}

// TLS listens on address, which is host:port, for peers by mutual TLS. Those that read much are woken
// for many packets at a time.
func TLS(address string, conf *tls.Config) Listen {
	return func() (net.Listener, error) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		return welcome(coalesce.Listener(l), conf), nil
	}
}
