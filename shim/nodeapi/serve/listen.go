package serve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// Listen opens what a server takes connections from.
type Listen func() (net.Listener, error)

// Unix listens on a socket at path that only the process's own user may connect to
// (mode 0600). The socket that an earlier process left there is replaced; anything
// else at path is an error.
func Unix(path string) Listen {
	return func() (net.Listener, error) {
		if err := removeSocket(path); err != nil {
			return nil, err
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
}

func removeSocket(path string) error {
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
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing an earlier socket: %w", err)
	}
	return nil
}

// TCP listens on address, which is host:port.
func TCP(address string) Listen {
	return func() (net.Listener, error) {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listening: %w", err)
		}
		return l, nil
	}
}

// TLS listens on address, which is host:port, for TLS.
func TLS(address string, conf *tls.Config) Listen {
	return func() (net.Listener, error) {
		l, err := TCP(address)()
		if err != nil {
			return nil, err
		}
		return tls.NewListener(l, conf), nil
	}
}
