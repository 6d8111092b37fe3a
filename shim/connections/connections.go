// Package connections has sandboxes connected to the servers that the operator lists, before their programs start. A
// program finds them by a socket of its sandbox, as descriptors that it inherits, or by connect(2). Who asks is known by
// the socket that he asks on.
package connections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"
	"go.opentelemetry.io/otel"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/databuffer"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/pool"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	// noteDirectory is the directory below a sandbox's own that has noteName; a destination's own is doorPrefix and its name.
	noteDirectory = "connections"
	noteName      = "connections.json"
	doorPrefix    = "connection-"

	// openTimeout bounds the opening of a connection while a program waits for it.
	openTimeout = 10 * time.Second
	// startTimeout is how long a program has for its start-up, as PostgreSQL's authentication_timeout.
	startTimeout = 60 * time.Second

	reasonRefused = "DestinationNotGranted"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/connections")

// Shims do in sandboxes what the daemon cannot.
type Shims interface {
	// Dial connects to an address in the sandbox's network namespace.
	Dial(ctx context.Context, sandbox string, at netip.AddrPort) (net.Conn, error)
	// Join has two streams joined, whatever becomes of the daemon. The caller closes its own copies.
	Join(ctx context.Context, sandbox string, client, server net.Conn) error
	// Targets says for which addresses Connect is to be asked about the sandbox's programs.
	Targets(sandbox string, all []netip.AddrPort)
}

// Config is what a server is made of.
type Config struct {
	Shims Shims
	// SecretsDir has the destinations' secrets. List is the node's own list, a file; empty: Set brings one.
	SecretsDir, List string
	// Event is told what an operator should see.
	Event func(*nodeapi.Event)
	// Traceparent is the trace of the request that a sandbox works on, if it is known (W3C trace context).
	Traceparent func(sandbox string) string
	// Buffer has what sandboxes do before their turn.
	Buffer *databuffer.Buffer
	// Next is that of the request that it gets next; empty: ctx has ended before.
	Next    func(ctx context.Context, sandbox string) string
	Metrics *Metrics
	Log     *slog.Logger
}

// Server has the connections of a node's sandboxes. Its methods may be called at the same time.
type Server struct {
	config Config
	list   *list
	pool   *pool.Pool[waiting]
	starts starts
	places *fair.Places // of the connections in the daemon's hands
	budget budget

	ctx        context.Context // ends the background
	cancel     context.CancelFunc
	background sync.WaitGroup
	pumped     atomic.Int64 // programs' streams that pass the daemon

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

// New returns a server without sandboxes.
func New(c Config) (*Server, error) {
	s := &Server{config: c, sandboxes: map[string]*sandbox{}, places: fair.NewPlaces(connectionsOfNode)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.pool = pool.New(pool.Config[waiting]{Open: s.fill, Lost: c.Metrics.lost, Failed: s.failed})
	var err error
	if s.list, err = openList(c.SecretsDir, c.List, s.renew); err != nil {
		s.pool.Close()
		return nil, err
	}
	return s, nil
}

// Close ends all connections that pass the daemon.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel() // no sandbox begins any more
	s.mu.Unlock()
	s.background.Wait()
	s.pool.Close()
	s.list.close()
}

// Set takes the control plane's list. It does not count on a node that has its own: a control plane that somebody has
// taken over would have credentials sent to servers of its choice.
func (s *Server) Set(all []*nodeapi.Destination) {
	if s.list.own == nil {
		s.list.replace(all)
		s.targetAll()
	}
}

// renew gives up all connections with a destination that no program has yet: it is another one than before. Sandboxes that
// have not asked for theirs get another one.
func (s *Server) renew(name string) {
	s.pool.Renew(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	for _, sb := range s.sandboxes {
		sb.mu.Lock()
		a := sb.aheads[name]
		delete(sb.aheads, name)
		sb.mu.Unlock()
		if a == nil {
			continue
		}
		s.background.Go(a.drop)
		if d, err := s.list.get(name, sb.namespace); err == nil {
			s.prepare(sb, name, d)
		}
	}
}

// waited notes what has become of a connection that waited.
func (s *Server) waited(d *destination, lost bool) {
	if d.waited(lost) {
		s.config.Log.Info("a server speaks before its client: connections are made when programs ask", "destination", d.config.GetName())
		s.pool.Silence(d.config.GetName())
	}
}

// Watch follows list, secrets and addresses, and tells of problems that are others than before, until ctx ends.
func (s *Server) Watch(ctx context.Context, tell func(*nodeapi.DestinationProblems)) {
	s.list.watch(ctx, s.used, tell, s.targetAll, s.config.Log)
}

// used are the destinations of the node's sandboxes, and those that connections wait with.
func (s *Server) used() map[string]bool {
	used := map[string]bool{}
	for _, u := range s.pool.Usage() {
		used[u.Destination] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sb := range s.sandboxes {
		for _, name := range sb.Destinations {
			used[name] = true
		}
	}
	return used
}

// sandbox is one that is to be connected.
type sandbox struct {
	id, namespace string
	note
	ctx    context.Context // ends with it
	cancel context.CancelFunc
	open   atomic.Int64 // connections in the daemon's hands
	first  first

	mu     sync.Mutex
	doors  map[string]*door
	aheads map[string]*ahead
	stores map[string]*databuffer.Store // that sessions are buffered of
	// refused are the destinations that an event has said are not to be had.
	refused map[string]bool
}

// note is what outlives the daemon.
type note struct {
	// Function is namespace/name of the function or the job.
	Function     string   `json:"function"`
	Destinations []string `json:"destinations"`
	By           string   `json:"by"`
	// Buffered: the program may work on requests before their turn.
	Buffered bool `json:"buffered,omitempty"`
	// Kinds are those of the destinations: the next daemon opens the doors before it has a list.
	Kinds map[string]string `json:"kinds"`
}

// Bring implements sandboxes.Provider. A container that has nothing to do with connections gets none, whatever its pod has.
func (s *Server) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	if sb.Connections == nil && !sb.Runs() {
		return sandboxes.Need{}, nil
	}
	known, err := s.enter(sb)
	if err != nil || known == nil {
		return sandboxes.Need{}, err
	}
	need := sandboxes.Need{Streams: true, Connect: known.By == filterapi.ByConnect}
	for _, name := range known.Destinations {
		d, err := s.list.get(name, known.namespace)
		kind := known.Kinds[name]
		switch {
		case err == nil:
			kind = d.config.GetKind()
		case kind == "":
			s.refuse(known, name, err)
			continue // the program finds nothing there, and connects by itself
		}
		mount, err := s.openDoor(known, sb, name, kind)
		if err != nil {
			s.config.Log.Warn("a sandbox goes without a connection", "instance", sb.ID, "destination", name, "error", err)
			continue
		}
		need.Mounts = append(need.Mounts, mount)
		if known.By == filterapi.ByDescriptor {
			need.Descriptors = append(need.Descriptors, sandboxes.Descriptor{Name: name,
				Open: func() (*os.File, error) { return s.descriptor(known, name) }})
		}
		if !sb.Runs() && d != nil {
			s.prepare(known, name, d)
		}
	}
	if need.Connect {
		s.background.Go(func() { s.locate(known) })
	}
	return need, nil
}

// enter returns what is known of a sandbox; nil: it is not to be connected.
func (s *Server) enter(sb sandboxes.Sandbox) (*sandbox, error) {
	if known := s.known(sb.ID); known != nil {
		return known, nil
	}
	n, err := s.noteOf(sb) // which writes to the disk, so nobody else waits
	if err != nil || n == nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.sandboxes[sb.ID]; known != nil || s.ctx.Err() != nil {
		return known, nil
	}
	known := &sandbox{id: sb.ID, namespace: sb.Namespace, note: *n, doors: map[string]*door{}, aheads: map[string]*ahead{},
		stores: map[string]*databuffer.Store{}, refused: map[string]bool{}}
	known.ctx, known.cancel = context.WithCancel(s.ctx)
	s.sandboxes[sb.ID] = known
	return known, nil
}

// known returns a sandbox; nil: it is not to be connected.
func (s *Server) known(id string) *sandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sandboxes[id]
}

// noteOf reads what is noted of a sandbox, or notes what its container is to have; nil: nothing.
func (s *Server) noteOf(sb sandboxes.Sandbox) (*note, error) {
	dir, path, err := sb.Directory(noteDirectory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it was made without
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close() // it was only read from
	if c := sb.Connections; c != nil {
		n := &note{Function: c.GetName(), Destinations: c.GetDestinations(), By: c.GetBy(), Buffered: sb.Gate != nil, Kinds: map[string]string{}}
		maps.Copy(n.Kinds, c.GetKinds())
		for _, name := range n.Destinations {
			if d, err := s.list.get(name, sb.Namespace); err == nil {
				n.Kinds[name] = d.config.GetKind()
			}
		}
		b, err := json.Marshal(n)
		if err == nil {
			err = os.Chmod(path, 0o700) // nobody but the daemon looks there
		}
		if err == nil {
			err = renameio.WriteFile(path+"/"+noteName, b, 0o600)
		}
		if err != nil {
			return nil, fmt.Errorf("noting a sandbox's connections: %w", err)
		}
		return n, nil
	}
	var n note
	b, err := dir.ReadFile(noteName)
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what is noted of a sandbox's connections: %w", err)
	}
	return &n, nil
}

// refuse tells an operator, once for a sandbox and destination, that a function does not get what it asks for.
func (s *Server) refuse(sb *sandbox, name string, err error) {
	s.config.Metrics.fallback("", reasonNotAllowed)
	sb.mu.Lock()
	before := sb.refused[name]
	sb.refused[name] = true
	sb.mu.Unlock()
	if before || sb.ctx.Err() != nil {
		return
	}
	s.config.Log.Warn("a sandbox goes without a connection", "instance", sb.id, "destination", name, "error", err)
	s.config.Event(&nodeapi.Event{Function: sb.Function, Reason: reasonRefused, Field: filterapi.AnnotationConnections,
		Message: err.Error() + "; the program goes without the connection"})
}

// openDoor opens the door to a destination, and returns how the sandbox sees it.
func (s *Server) openDoor(known *sandbox, sb sandboxes.Sandbox, name, kind string) (*nodeapi.Mount, error) {
	dir, path, err := sb.Directory(doorPrefix + name)
	if err != nil {
		return nil, err
	}
	sockets, _, err := sb.Directory(functionapi.Directory)
	if err != nil {
		_ = dir.Close() // it was only opened
		return nil, err
	}
	err = sockets.Mkdir(name, 0o755) // what the mount covers
	_ = sockets.Close()              // it was only written to
	if err != nil && !errors.Is(err, fs.ErrExist) {
		_ = dir.Close()
		return nil, fmt.Errorf("making the place of a connection's sockets: %w", err)
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.doors[name] != nil || known.ctx.Err() != nil {
		_ = dir.Close()
	} else {
		opened, err := s.listen(known, name, kind, dir)
		if err != nil {
			return nil, err
		}
		known.doors[name] = opened
	}
	return &nodeapi.Mount{Source: path, Destination: functionapi.Mount + "/" + name, ReadOnly: true}, nil
}

// Release implements sandboxes.Provider.
func (s *Server) Release(id string) {
	s.mu.Lock()
	known := s.sandboxes[id]
	delete(s.sandboxes, id)
	s.mu.Unlock()
	if known != nil {
		known.cancel()
		s.config.Shims.Targets(id, nil)
	}
}

// find returns the sandbox, if it is to be connected to the destination. It waits for a list that has this: programs may ask
// a daemon that has just replaced another, or whose list is older than the control plane's.
func (s *Server) find(id, name string) (*sandbox, *destination, error) {
	known := s.known(id)
	if known == nil || !slices.Contains(known.Destinations, name) {
		return nil, nil, fmt.Errorf("sandbox %.64q is not to be connected to %.64q", id, name)
	}
	ctx, cancel := context.WithTimeout(known.ctx, openTimeout)
	defer cancel()
	d, err := s.list.await(ctx, name, known.namespace)
	if err != nil {
		s.refuse(known, name, err)
	}
	return known, d, err
}
