// Package functionapi is a function's own way to its node's daemon: a unix socket in each
// sandbox, by which it reads the inputs of the requests that it works on, and calls other
// functions. Who asks is known by the socket that he asks on, never by what he says.
package functionapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	// CallsLimit is how many calls one sandbox may have under way: more than a program waits
	// for at a time, and few enough for one that calls itself without end to be stopped by.
	CallsLimit = 256
	// ConnectionsLimit is how many connections one sandbox may have open. Further ones wait
	// until one is closed.
	ConnectionsLimit = 512
	// ReadsLimit is how many reads one sandbox may have under way: as many as connections, so
	// that only streams of HTTP/2 come to it. Each has a descriptor and a buffer.
	ReadsLimit = ConnectionsLimit
	// ReadsOfNode is how many reads all sandboxes of a node may have under way: as many as it may
	// have inputs.
	ReadsOfNode = 1024
	// idleTimeout closes connections that a function has forgotten.
	idleTimeout = 90 * time.Second
	// headLimit bounds a request's headers, in bytes: as many as the gateway takes from its
	// clients.
	headLimit = 32 << 10
	// streamWindow is how many bytes of bodies that nobody reads yet an HTTP/2 connection
	// may bring, and each of its streams.
	streamWindow = 256 << 10
	// grace is what requests under way get at the server's end, as at the daemon's other
	// sockets.
	grace = 5 * time.Second
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/functionapi")

var errEnded = errors.New("the sockets are closed: the daemon is being stopped")

// Config is what a server is made of.
type Config struct {
	// Function returns a function by its name, or a *problem.Problem if there is none.
	Function func(ctx context.Context, name string) (*nodeapi.Function, error)
	// Caller is the name of the function whose instance a sandbox is, empty if it is none's. nil: of no
	// sandbox that is known.
	Caller func(ctx context.Context, sandbox string) string
	// Job waits until the node has heard of the job whose sandbox it is, if it is a job's. Its
	// error is the *problem.Problem for which that has no input. nil: of all jobs it has heard.
	Job func(ctx context.Context, sandbox string) error
	// Store makes a file below the directory of a sandbox's outputs an object of its store, and returns the object's entity
	// tag. header has what a PUT would say of it. Its error is a *problem.Problem.
	Store func(ctx context.Context, sandbox, file string, to source.Reference, header http.Header) (tag string, err error)
	// Late hears of a sandbox whose program does something for nobody: it has answered its last request, which began before its turn, and
	// has no other.
	Late func(sandbox string)
	// Succeeds: another daemon of the node, which had the sockets before, still ends its
	// requests and is asked for their inputs.
	Succeeds bool
	Metrics  *Metrics
	Log      *slog.Logger
}

// Server serves the sockets of a node's sandboxes. Its methods may be called at the same
// time.
type Server struct {
	config     Config
	deliveries deliveries
	reads      *fair.Places // under way
	large      *fair.Places // has one for each of them that has a large room
	outputs    *fair.Places // those that are being stored

	mu        sync.Mutex
	sandboxes map[string]*sandbox
	running   context.Context // nil before Run
	calls     http.Handler    // set with running
	ended     bool
	serving   sync.WaitGroup
}

// New returns a server without sockets. It answers nobody before Run.
func New(c Config) *Server {
	if c.Caller == nil {
		c.Caller = func(context.Context, string) string { return "" }
	}
	if c.Late == nil {
		c.Late = func(string) {}
	}
	return &Server{config: c, deliveries: deliveries{of: map[string][]*delivery{}, waits: map[chan string]string{}, last: map[string]*attempt.Attempt{},
		calling: map[*attempt.Attempt]int{}}, reads: fair.NewPlaces(ReadsOfNode),
		large: fair.NewPlaces(roomsLarge), outputs: fair.NewPlaces(OutputsOfNode), sandboxes: map[string]*sandbox{}}
}

// Begin implements sandboxes.Deliveries.
func (s *Server) Begin(instance string, d sandboxes.Delivery) (end func()) {
	return s.deliveries.begin(instance, d)
}

// Traceparent is the trace of the request that an instance works on; empty: of none, or of several.
func (s *Server) Traceparent(instance string) string {
	return s.deliveries.origin(instance, "", trace.TraceID{}).traceparent
}

// Current is the attempt that an instance works on, or has worked on last; nil: it is none, or its turn has come.
func (s *Server) Current(instance string) *attempt.Attempt { return s.deliveries.current(instance) }

// Works hears that an instance does something that others may see.
func (s *Server) Works(instance string) {
	if s.deliveries.idle(instance) {
		s.config.Late(instance)
	}
}

// Turn waits until what an instance does may have effects, or until a channel is closed; nil: none is.
func (s *Server) Turn(ctx context.Context, instance string, until <-chan struct{}) error {
	return s.deliveries.turn(ctx, instance, until)
}

// Next waits for the next request that an instance gets, and returns its trace; empty: it has none, or ctx has ended before.
func (s *Server) Next(ctx context.Context, instance string) string {
	return s.deliveries.next(ctx, instance)
}

// Open makes the socket of a sandbox in dir, which is the server's to close, and serves it
// until Close: also for the daemon's next process, which takes it over. A sandbox that has
// one keeps it.
func (s *Server) Open(id, namespace string, dir *os.Root) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.sandboxes[id] != nil {
		_ = dir.Close() // it was only read from
		if s.ended {
			return errEnded
		}
		return nil
	}
	sb, err := listen(id, namespace, dir, s.config.Succeeds)
	if err != nil {
		return err
	}
	s.sandboxes[id] = sb
	s.config.Metrics.sockets.Inc()
	if s.running != nil {
		s.serve(sb)
	}
	return nil
}

// Close ends the socket of a sandbox that is no more. It does not wait.
func (s *Server) Close(id string) {
	s.deliveries.forget(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.sandboxes[id]
	if sb == nil {
		return
	}
	delete(s.sandboxes, id)
	if sb.stop != nil {
		sb.stop()
		return
	}
	s.release(sb)
}

// Run serves the sockets until ctx ends and all requests are over or had their time. What
// functions call goes to calls as a gateway's requests do. It is called once.
func (s *Server) Run(ctx context.Context, calls http.Handler) {
	s.mu.Lock()
	s.running, s.calls = ctx, calls
	for _, sb := range s.sandboxes {
		s.serve(sb)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.ended = true // serving grows no more
	s.mu.Unlock()
	s.serving.Wait()
}

// serve serves one socket to its end; the caller holds mu.
func (s *Server) serve(sb *sandbox) {
	ctx, stop := context.WithCancel(s.running)
	sb.stop = stop
	h := &handler{server: s, sandbox: sb, calls: s.calls}
	s.serving.Go(func() {
		defer s.release(sb)
		defer stop()
		limited := serve.Limit(sb.listener, serve.Crowd{All: ConnectionsLimit})
		err := serve.HTTP(ctx, h, grace, s.config.Log, serve.H2C, limits)(limited)
		if err != nil {
			s.config.Log.Error("a function's socket is not served any more", "instance", sb.id, "error", err)
		}
	})
}

func (s *Server) release(sb *sandbox) {
	sb.close()
	s.config.Metrics.sockets.Dec()
}

func limits(s *http.Server) {
	s.ConnContext = withConnection
	s.IdleTimeout = idleTimeout
	s.MaxHeaderBytes = headLimit
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: CallsLimit, MaxReceiveBufferPerConnection: streamWindow, MaxReceiveBufferPerStream: streamWindow}
}
