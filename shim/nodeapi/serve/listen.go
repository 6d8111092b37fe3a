package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// Unix listens on a socket at path that only the process's own user may connect to
// (mode 0600). The socket that an earlier process left there is replaced; anything
// else at path is an error.
func Unix(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("looking for an earlier socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("listening on %s: there is something else than a socket", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing an earlier socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("closing a socket to others: %w", err), l.Close())
	}
	return l, nil
}
