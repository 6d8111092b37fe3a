package descriptors_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
)

// failing is a listener whose first errors are these.
type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Accept() (net.Conn, error) {
	if len(f.errs) == 0 {
		return f.Listener.Accept()
	}
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
}

// A daemon that is short of descriptors goes on, and takes its shims later, on each of its sockets for them. Other
// errors end it.
func TestAcceptFails(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, serve := range map[string]func(context.Context) func(net.Listener) error{
		"descriptors": func(ctx context.Context) func(net.Listener) error { return descriptors.Serve(ctx, nobody, log) },
		"endpoints":   func(ctx context.Context) func(net.Listener) error { return endpoints.Serve(ctx, nil, log) },
		"streams":     func(ctx context.Context) func(net.Listener) error { return streams.NewHub(log).Serve(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := "unix"
			if name == "streams" {
				network = "unixpacket"
			}
			first, path := listen(t)
			first.Close() // its path is for two others
			serving := func(errs ...error) func(context.Context) error {
				l, err := net.Listen(network, path)
				if err != nil {
					t.Fatal(err)
				}
				return func(ctx context.Context) error { return serve(ctx)(&failing{l, errs}) }
			}
			if err := serving(syscall.EMFILE, syscall.EINVAL)(t.Context()); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%v, want that it is over", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			served, again := make(chan error), serving(syscall.EMFILE, syscall.ENFILE, syscall.ECONNABORTED)
			go func() { served <- again(ctx) }()
			c, err := net.Dial(network, path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Write([]byte("nobody"))
			if err = errors.Join(err, c.(*net.UnixConn).CloseWrite()); err != nil {
				t.Error(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("%v, want the end that nobody's connection has", err)
			}
			c.Close()
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}

func nobody(string) ([]*os.File, error) { return nil, errors.New("unknown") }
