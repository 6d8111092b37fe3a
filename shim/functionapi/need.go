package functionapi

import (
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	// Mount is where a sandbox sees the directory of its socket. It is a directory's
	// mount, not the socket's: a daemon that is started again makes a new socket.
	Mount = "/headstart/socket"
	// socketName is the socket's name there.
	socketName = "headstart.sock"

	// Directory is the directory's below a sandbox's own.
	Directory = "socket"
)

// Bring implements sandboxes.Provider: each sandbox has a socket. Nothing but the socket needs
// it.
func (s *Server) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	dir, path, err := sb.Directory(Directory)
	if err != nil {
		return sandboxes.Need{}, err
	}
	if err := s.Open(sb.ID, sb.Namespace, dir); err != nil {
		return sandboxes.Need{}, err
	}
	return sandboxes.Need{
		Mounts: []*nodeapi.Mount{{Source: path, Destination: Mount, ReadOnly: true}},
		Env:    map[string]string{"HEADSTART_SOCKET": Mount + "/" + socketName},
	}, nil
}

// Release implements sandboxes.Provider.
func (s *Server) Release(id string) { s.Close(id) }
