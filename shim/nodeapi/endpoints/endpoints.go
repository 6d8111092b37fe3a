// Package endpoints hands listeners on the loopback of sandboxes from their shims to the node's daemon: by a unix
// socket beside that of the gRPC. The daemon knows by the listener which sandbox connects.
package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
)

const (
	// Timeout bounds one hand-over, which takes less than a millisecond.
	Timeout = 2 * time.Second

	socketName = "endpoints.sock"
	// messageLimit is longer than any offer, in bytes: the id of a sandbox has 354 at most.
	messageLimit = 1024
	// taken is what the daemon says of a directory that it takes. To a shim that offers none it says nothing.
	taken = 1
)

// Path is the path of the socket, by that of the daemon's gRPC.
func Path(socket string) string { return filepath.Join(filepath.Dir(socket), socketName) }

// Offer is what a shim says of an endpoint.
type Offer struct {
	// Sandbox is the id of the sandbox, of Kubernetes that of the pod.
	Sandbox string `json:"sandbox"`
	Name    string `json:"name"`
	// Left is why a container goes without the endpoint, which has no listener then.
	Left string `json:"left,omitempty"`
	// Output is the open directory of the sandbox's outputs, nil for none. It comes as a descriptor.
	Output *os.File `json:"-"`
}

// Server takes what shims offer.
type Server interface {
	// Serve serves a sandbox's listener, which it closes, until ctx ends. The offer's directory is open until it returns.
	Serve(ctx context.Context, o Offer, l net.Listener)
	// Left hears of a container that goes without.
	Left(o Offer)
}

// Serve returns what takes offers on a listener until ctx ends. The listeners that were taken are served as long as
// their shims keep the connections.
func Serve(ctx context.Context, s Server, log *slog.Logger) func(net.Listener) error {
	return descriptors.Accept(ctx, log, func(ctx context.Context, c *net.UnixConn) {
		if err := take(ctx, c, s); err != nil {
			log.Warn("an endpoint of a sandbox is not served", "error", err)
		}
	})
}

// take serves what one shim offers until the shim ends the connection, or ctx ends. Then the shim hears at once that it
// is to find another daemon.
func take(ctx context.Context, c *net.UnixConn, s Server) error {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := c.SetReadDeadline(time.Now().Add(Timeout)); err != nil {
		return fmt.Errorf("bounding a hand-over: %w", err)
	}
	o, l, err := receive(c)
	if o.Output != nil {
		defer o.Output.Close() // it was only looked into
	}
	if err != nil || l == nil {
		if err == nil {
			s.Left(o)
		}
		return err
	}
	if o.Output != nil {
		_, err = c.Write([]byte{taken}) // an earlier daemon ends the connection
	}
	if err := errors.Join(err, c.SetReadDeadline(time.Time{})); err != nil {
		return errors.Join(fmt.Errorf("waiting for the shim's end: %w", err), l.Close())
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() {
		defer cancel()
		_, _ = c.Read(make([]byte, 1)) // nothing comes but the end
	})
	s.Serve(ctx, o, l)
	cancel()
	return nil
}

// receive returns an offer with its listener, nil for none. Who has the offer closes its directory.
func receive(c *net.UnixConn) (o Offer, _ net.Listener, err error) {
	said := make([]byte, messageLimit)
	control := make([]byte, unix.CmsgSpace(2*descriptors.Size))
	n, controls, flags, _, err := c.ReadMsgUnix(said, control)
	if err != nil {
		return o, nil, fmt.Errorf("receiving an endpoint: %w", err)
	}
	files, err := descriptors.Received(control[:controls])
	defer func() {
		for _, f := range files {
			_ = f.Close() // the listener has a copy
		}
	}()
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = errors.New("too many descriptors")
	}
	if err == nil {
		err = json.Unmarshal(said[:n], &o)
	}
	if err == nil && (len(files) == 0) != (o.Left != "") {
		err = fmt.Errorf("%d descriptors", len(files))
	}
	if err != nil {
		return o, nil, fmt.Errorf("receiving an endpoint: not of the protocol: %w", err)
	}
	if len(files) == 0 {
		return o, nil, nil
	}
	l, err := listenerOf(files[0])
	if err != nil {
		return o, nil, fmt.Errorf("endpoint %q of sandbox %q: %w", o.Name, o.Sandbox, err)
	}
	if len(files) > 1 {
		o.Output = files[1]
		if info, err := o.Output.Stat(); err != nil || !info.IsDir() {
			return o, nil, errors.Join(fmt.Errorf("the outputs of sandbox %q are no directory", o.Sandbox), err, l.Close())
		}
		files = files[:1]
	}
	return o, l, nil
}

// listenerOf allows listeners on a loopback only: who connects elsewhere is not the sandbox.
func listenerOf(f *os.File) (net.Listener, error) {
	// FileListener also takes sockets that do not listen.
	listens, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil || listens == 0 {
		return nil, errors.Join(errors.New("the descriptor is no listener"), err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("the descriptor is no listener: %w", err)
	}
	if at, is := l.Addr().(*net.TCPAddr); !is || !at.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("it listens on %s, which is no loopback", l.Addr()), l.Close())
	}
	return l, nil
}
