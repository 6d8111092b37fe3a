// Package ads serves Envoys of a test or benchmark what Headstart would, from the test's own
// process: by the same code, a control plane's and a daemon's for each gateway, but of a state that
// the test makes up.
package ads

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/local"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/relay"
)

// Server is a running one. What it serves is set by Update.
type Server struct {
	// Log is of all that it does. Refused hears what gateways refuse, Activity which functions they send
	// requests to, Hints what their filters tell of requests. They are set before Gateway.
	Log      *slog.Logger
	Refused  func(*nodeapi.GatewayRefusals)
	Activity relay.Activity
	Hints    http.Handler

	dir     string
	server  *xds.Server
	conn    *grpc.ClientConn
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	relays  []told

	mu        sync.Mutex
	functions []*nodeapi.Function
}

// told is a gateway's relay, and what that has confirmed.
type told struct {
	*relay.Relay
	confirmed chan int64
}

// Open serves with sockets in dir, for Envoys of any network namespace.
func Open(dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	name := func(f platform.Function) string { return f.Name }
	s := &Server{
		dir: dir, Log: slog.New(slog.DiscardHandler), Refused: func(*nodeapi.GatewayRefusals) {}, Activity: nobody{},
		Hints: http.NotFoundHandler(),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.server = xds.New(
		xds.Config{Endpoints: name, Cluster: name, Verify: func(context.Context, string) error { return nil }}, s.Log,
	)
	socket := filepath.Join(dir, "controlplane.sock")
	if err := s.serve(socket, s.server.Register, xds.ServerOptions()...); err != nil {
		return nil, err
	}
	var err error
	s.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return s, err
}

// serve serves what register adds at a unix socket, until Close.
func (s *Server) serve(socket string, register func(*grpc.Server), options ...grpc.ServerOption) error {
	g := grpc.NewServer(options...)
	register(g)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listening for gateways: %w", err)
	}
	s.running.Go(func() { _ = g.Serve(l) }) // ends with Stop; Envoy says what went wrong before
	context.AfterFunc(s.ctx, g.Stop)
	return nil
}

// serveFilters serves what a gateway's filters ask its daemon, until Close.
func (s *Server) serveFilters(socket string, r *relay.Relay) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("listening for filters: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", s.Hints)
	mux.Handle(filterapi.ExpectationsPath, r.Expectations())
	h := &http.Server{Handler: mux}
	s.running.Go(func() { _ = h.Serve(l) }) // ends with Close
	context.AfterFunc(s.ctx, func() { _ = h.Close() })
	return nil
}

// Gateway serves one more gateway, and returns the bootstrap of its Envoy. Of c it sets where the
// Envoy is served.
func (s *Server) Gateway(c gateway.Config) ([]byte, error) {
	c.RelaySocket = filepath.Join(s.dir, c.Node+".sock")
	b, err := c.Bootstrap()
	if err != nil {
		return nil, err
	}
	confirmed := make(chan int64, 1)
	r := relay.New(relay.Config{Gateway: c, Node: c.Node, ControlPlane: s.conn, Activity: s.Activity, Refused: s.Refused,
		Confirmed: func(id int64) { confirmed <- id }, Metrics: relay.NewMetrics(prometheus.NewRegistry()), Log: s.Log})
	if err := s.serve(c.RelaySocket, r.Register, relay.ServerOptions()...); err != nil {
		return nil, err
	}
	if c.Filters != "" {
		if err := s.serveFilters(c.HintSocket, r); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.functions != nil {
		r.SetFunctions(s.functions)
	}
	s.relays = append(s.relays, told{r, confirmed})
	s.running.Go(func() { r.Run(s.ctx) })
	return b, nil
}

// nobody hears which functions are in use.
type nobody struct{}

func (nobody) Seen(string, bool) {}

// Update publishes the platform's state and w to the gateways.
func (s *Server) Update(st platform.State, w routing.Weights) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.functions = make([]*nodeapi.Function, 0, len(st.Functions))
	for _, f := range st.Functions {
		s.functions = append(s.functions, local.Message(f))
	}
	for _, r := range s.relays {
		r.SetFunctions(s.functions)
	}
	return s.server.Update(st, w)
}

// Settled returns when each gateway that is connected has taken or refused all that was published
// before. It is not called side by side.
func (s *Server) Settled(ctx context.Context) error {
	if err := s.server.Settled(ctx); err != nil {
		return err
	}
	for _, r := range s.relays {
		r.Confirm(0)
		select {
		case <-r.confirmed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Signals are of the requests that gateways sent to instances since it was called last.
func (s *Server) Signals(now time.Time) (all []*nodeapi.RoutedSignals) {
	for _, r := range s.relays {
		all = append(all, r.Signals(now)...)
	}
	return all
}

// Close ends all streams.
func (s *Server) Close() error {
	s.stop()
	s.running.Wait()
	return errors.Join(s.conn.Close(), os.RemoveAll(s.dir))
}
