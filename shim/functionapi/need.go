package functionapi

import (
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	// socketMount is where a sandbox sees the directory of its socket. It is a directory's
	// mount, not the socket's: a daemon that is started again makes a new socket.
	socketMount = "/headstart/socket"
	// socketName is the socket's name there.
	socketName = "headstart.sock"

	// directoryName is the directory's below a sandbox's own.
	directoryName = "socket"
)

// Bring implements sandboxes.Provider: each sandbox has a socket. Nothing but the socket needs
// it.
func (s *Server) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	dir, path, err := sb.Directory(directoryName)
	if err != nil {
		return sandboxes.Need{}, err
	}
	if err := s.Open(sb.ID, sb.Namespace, dir); err != nil {
		return sandboxes.Need{}, err
	}
	return sandboxes.Need{
		Mounts: []*nodeapi.Mount{{Source: path, Destination: socketMount, ReadOnly: true}},
		Env:    map[string]string{"HEADSTART_SOCKET": socketMount + "/" + socketName},
	}, nil
}

// Release implements sandboxes.Provider.
func (s *Server) Release(id string) { s.Close(id) }
