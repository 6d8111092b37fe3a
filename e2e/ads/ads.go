// Package ads serves Envoys of a test or benchmark what the control plane would, from the
// test's own process: by the same code, but of a state that the test makes up.
package ads

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

// name is of the one certificate that server and Envoys share.
const name = "ads"

// Server is a running one. What it serves is set by Update.
type Server struct {
	*xds.Server

	address netip.AddrPort
	files   pki.Files
	grpc    *grpc.Server
	served  chan struct{}
}

// Open serves at address, for Envoys that connect from anywhere. dir is for keys. Of c it sets
// what checks and hears of the gateways: all may speak, of their load nobody hears.
func Open(dir string, address netip.AddrPort, c xds.Config) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	authority, err := pki.New(filepath.Join(dir, "pki"))
	if err != nil {
		return nil, err
	}
	s := &Server{address: address, served: make(chan struct{})}
	if s.files, err = authority.Issue(name, address.Addr()); err != nil {
		return nil, err
	}
	tls, _, err := peertls.Load(s.files.Cert, s.files.Key, s.files.CA)
	if err != nil {
		return nil, err
	}
	c.Verify = func(context.Context, string) error { return nil }
	c.OnLoad = func(string, []signals.Load) {}
	s.Server = xds.New(c, slog.New(slog.DiscardHandler))
	s.grpc = grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(credentials.NewTLS(tls)))...)
	s.Register(s.grpc)
	l, err := net.Listen("tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listening for gateways: %w", err)
	}
	go func() {
		defer close(s.served)
		_ = s.grpc.Serve(l) // ends with Stop; Envoy says what went wrong before
	}()
	return s, nil
}

// Bootstrap is the configuration of the Envoy that is a gateway of that name.
func (s *Server) Bootstrap(gateway, adminSocket string) ([]byte, error) {
	return xds.Bootstrap(xds.BootstrapConfig{NodeID: gateway, Cluster: name, ControlPlaneAddress: s.address.String(), ServerName: name,
		CertFile: s.files.Cert, KeyFile: s.files.Key, CAFile: s.files.CA, AdminSocket: adminSocket})
}

// Close ends all streams.
func (s *Server) Close() {
	s.grpc.Stop()
	<-s.served
}
