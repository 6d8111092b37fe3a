package functionapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync/atomic"

	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// previousName is the socket of the daemon that an update replaces, for as long as it ends
// its requests.
const previousName = "previous.sock"

// sandbox is one socket, and who is behind it.
type sandbox struct {
	id, namespace string
	root          *os.Root
	// dir is root's directory: the socket is made by the path of its descriptor, since
	// that of the directory may be longer than a socket's address can hold (unix(7)).
	dir      *os.File
	listener net.Listener
	stop     context.CancelFunc // nil before it is served

	// Under way.
	calls, reads atomic.Int64
	previous     atomic.Bool // another daemon may answer by previousName
}

// listen makes the socket in root, in place of that of an earlier process.
func listen(id, namespace string, root *os.Root, succeeds bool) (*sandbox, error) {
	sb := &sandbox{id: id, namespace: namespace, root: root}
	err := sb.listen(succeeds)
	if err != nil {
		sb.close()
		return nil, fmt.Errorf("making the socket of a sandbox: %w", err)
	}
	return sb, nil
}

func (sb *sandbox) listen(succeeds bool) (err error) {
	if sb.dir, err = sb.root.Open("."); err != nil {
		return err
	}
	if err := sb.root.Remove(previousName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if succeeds {
		err := sb.root.Link(socketName, previousName)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sb.previous.Store(err == nil)
	}
	sb.listener, err = serve.UnixForAll(sb.path(socketName))()
	return err
}

// path is the path of a socket in the directory, which is short, whatever the directory's.
func (sb *sandbox) path(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", sb.dir.Fd(), name)
}

// dialPrevious connects to the daemon that had the socket before.
func (sb *sandbox) dialPrevious(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", sb.path(previousName))
	if err != nil && ctx.Err() == nil { // it has ended
		sb.previous.Store(false)
		_ = sb.root.Remove(previousName) // the next process does it otherwise
	}
	return conn, err
}

func (sb *sandbox) close() {
	if sb.listener != nil {
		_ = sb.listener.Close() // it may be closed already
	}
	if sb.dir != nil {
		_ = sb.dir.Close() // it only names the directory
	}
	_ = sb.root.Close() // likewise
}
