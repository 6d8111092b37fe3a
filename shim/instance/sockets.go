package instance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	// SocketMount is where a sandbox sees the directory of its socket. It is a directory's
	// mount, not the socket's: a daemon that is started again makes the socket anew.
	SocketMount = "/headstart/socket"
	// SocketName is the socket's name there.
	SocketName = "headstart.sock"

	// socketName is the directory's name below an instance's own.
	socketName = "socket"
)

// Sockets serve the sockets by which functions ask the daemon.
type Sockets interface {
	// Open serves the socket of an instance of that namespace in dir, which is its own from
	// then on.
	Open(id, namespace string, dir *os.Root) error
	// Close ends it, if there is one. It does not wait.
	Close(id string)
}

// openSocket gives an instance its socket; the log says why it has none. Nothing but the
// socket needs it.
func (s *Set) openSocket(in *instance) (opened bool) {
	if s.sockets == nil {
		return false
	}
	dir, err := s.dir.root.OpenRoot(filepath.Join(in.id, socketName))
	if err == nil {
		namespace, _, _ := strings.Cut(in.function, "/")
		err = s.sockets.Open(in.id, namespace, dir)
	}
	// One that an earlier version has made has no directory for it.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("an instance has no socket", "instance", in.id, "error", err)
	}
	return err == nil
}

// makeSocket makes the directory for openSocket.
func (s *Set) makeSocket(in *instance) (opened bool) {
	// The directories above are 0700; this one is seen by the function's own user.
	if err := s.dir.root.MkdirAll(filepath.Join(in.id, socketName), 0o755); err != nil {
		s.log.Warn("an instance has no socket", "instance", in.id, "error", err)
		return false
	}
	return s.openSocket(in)
}

func (s *Set) closeSocket(id string) {
	if s.sockets != nil {
		s.sockets.Close(id)
	}
}

// DescribeSocket adds a socket, whose directory is at path, to what belongs in a sandbox.
func DescribeSocket(d *nodeapi.DescribeResponse, path string) {
	d.Mounts = append(d.Mounts, &nodeapi.Mount{Source: path, Destination: SocketMount, ReadOnly: true})
	d.Env["HEADSTART_SOCKET"] = SocketMount + "/" + SocketName
}
