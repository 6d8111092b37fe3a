// Package s3proxy is S3 on the node: an address on a sandbox's loopback where its programs find a store's S3 API, by the
// variables that the SDKs know. It is no server but a proxy: it knows by the connection which sandbox asks, verifies the
// signature, answers what the node has, and signs all else again for the store, whose answer it passes on.
package s3proxy

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/renameio/v2"
	"go.opentelemetry.io/otel"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	listed "github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

const (
	// name is the endpoint's.
	name = "s3"
	// directoryName is the directory's below a sandbox's own, and noteName the file's in it.
	directoryName = "s3"
	noteName      = "endpoint.json"

	// connectionsMost is how many connections one sandbox may have. Further ones wait until one is closed.
	connectionsMost = 512
	// idleTimeout closes connections that a program has forgotten, so that those that wait get a turn.
	idleTimeout = 30 * time.Second
	// grace is what requests under way get at the daemon's end, as at its other sockets.
	grace = 5 * time.Second

	reasonLeft = "EndpointLeftAlone"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/s3proxy")

// Store is a store of the operator's with the S3 API.
type Store interface {
	// Forward sends a request on, signed for the store. Its URL has the path /bucket/key, and neither scheme nor host.
	Forward(r *http.Request) (*http.Response, error)
	// Region is what requests to the store are signed for.
	Region() string
	// Buckets are those that functions may use.
	Buckets() []string
}

// Config is what a server is made of.
type Config struct {
	// Await returns when Store knows the stores, or should not be waited for: a daemon that follows another has its sandboxes'
	// requests first.
	Await func(ctx context.Context)
	// Store finds a store by its name, for a function. Its error is a *problem.Problem.
	Store func(function, store string) (Store, error)
	// Rule is what the operator says of a store's bucket.
	Rule func(store, bucket string) objects.Rule
	// Objects has what the node holds.
	Objects *objects.Cache
	// Writes has what is written behind, in buckets of such a rule.
	Writes *writeback.Writer
	// Function is the name of the function whose instance a sandbox is, empty if it is none's that is known.
	Function func(sandbox string) string
	// Adopt has a sandbox bring its needs that another daemon of the node has described.
	Adopt func(sandbox string) error
	// Traceparent is the trace of the request that a sandbox works on, if it is known (W3C trace context).
	Traceparent func(sandbox string) string
	// Event is told what an operator should see.
	Event   func(*nodeapi.Event)
	Metrics *Metrics
	// Learned is the file where what is learned of functions outlives the daemon; empty: nowhere.
	Learned string
	Log     *slog.Logger
}

// Server serves the endpoints of a node's sandboxes. Its methods may be called at the same time.
type Server struct {
	config Config
	rooms  *fair.Places // has one for each answer that has a large room

	uploads   uploads
	foresight *foresight

	ctx        context.Context // ends the background
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu        sync.Mutex
	sandboxes map[string]*sandbox
}

// New returns a server without endpoints.
func New(c Config) *Server {
	s := &Server{config: c, rooms: fair.NewPlaces(roomsLarge), sandboxes: map[string]*sandbox{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.foresight = newForesight(s, c.Learned)
	if c.Learned != "" {
		s.background.Go(s.saveLearned)
	}
	return s
}

// Close ends what the server does besides answering. All endpoints are closed.
func (s *Server) Close() {
	s.cancel()
	s.background.Wait()
	s.uploads.forgetAll(func(uploadKey, *upload) bool { return true })
}

// saveLearned notes what is learned now and then, as a daemon can be killed, and at the end.
func (s *Server) saveLearned() {
	ticker := time.NewTicker(saveEvery)
	defer ticker.Stop()
	for ends := false; !ends; {
		select {
		case <-ticker.C:
		case <-s.ctx.Done():
			ends = true
		}
		if err := s.foresight.save(); err != nil {
			s.config.Log.Warn("what was learned of functions is not saved", "error", err)
		}
	}
}

// sandbox is one that has an endpoint.
type sandbox struct {
	id, namespace string
	note
	asked   atomic.Bool // it has sent a request
	outputs outputs
}

// note is what outlives the daemon.
type note struct {
	// Store is the store whose API the sandbox has.
	Store string `json:"store"`
	// Key is what the sandbox's credentials are derived from.
	Key []byte `json:"key"`
}

// Bring implements sandboxes.Provider.
func (s *Server) Bring(sb sandboxes.Sandbox) (sandboxes.Need, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.sandboxes[sb.ID]
	if known == nil {
		n, err := noteOf(sb)
		if err != nil || n == nil {
			return sandboxes.Need{}, err
		}
		known = &sandbox{id: sb.ID, namespace: sb.Namespace, note: *n}
		s.sandboxes[sb.ID] = known
	}
	// Of a store that the namespace may not use, or of which the node does not know yet: the program hears of that when it asks.
	region := listed.DefaultRegion
	if store, err := s.config.Store(cmp.Or(sb.Function, known.own()), known.Store); err == nil {
		region = store.Region()
	}
	return sandboxes.Need{Endpoints: []*nodeapi.Endpoint{{Name: name, Env: known.env(region), Output: true}}}, nil
}

// noteOf reads what is noted of a sandbox, or notes what its containers ask for; nil: nothing.
func noteOf(sb sandboxes.Sandbox) (*note, error) {
	if sb.S3 == "" && !sb.Runs() {
		return nil, nil
	}
	dir, path, err := sb.Directory(directoryName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it was made without
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close() // it was only read from
	var n note
	b, err := dir.ReadFile(noteName)
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err == nil && (n.Store == "" || len(n.Key) != keySize) { // anybody could derive the credentials of an empty key
		err = errors.New("it has no store or no key")
	}
	switch {
	case err == nil:
		return &n, nil
	case errors.Is(err, fs.ErrNotExist) && sb.S3 == "":
		return nil, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading what is noted of a sandbox's S3: %w", err)
	}
	n = note{Store: sb.S3, Key: newKey()}
	if b, err = json.Marshal(n); err == nil {
		err = os.Chmod(path, 0o700) // nobody but the daemon looks there
	}
	if err == nil {
		err = renameio.WriteFile(path+"/"+noteName, b, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("noting a sandbox's S3: %w", err)
	}
	return &n, nil
}

// Release implements sandboxes.Provider. The sandbox's shim ends the endpoint.
func (s *Server) Release(id string) {
	s.mu.Lock()
	delete(s.sandboxes, id)
	s.mu.Unlock()
	s.uploads.forgetAll(func(k uploadKey, _ *upload) bool { return k.sandbox == id })
	s.foresight.forget(id)
}

// starts tells whether nothing has come from a sandbox yet: it starts.
func (s *Server) starts(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := s.sandboxes[id]
	return sb == nil || !sb.asked.Load()
}

// Serve implements endpoints.Server.
func (s *Server) Serve(ctx context.Context, o endpoints.Offer, l net.Listener) {
	sb, err := s.find(o)
	if err != nil {
		_ = l.Close() // nobody is served
		s.config.Log.Warn("a sandbox's S3 is not served", "instance", o.Sandbox, "error", err)
		return
	}
	s.config.Metrics.endpoints.Inc()
	defer s.config.Metrics.endpoints.Dec()
	closed, err := sb.outputs.open(o.Output)
	if err != nil {
		s.config.Log.Warn("a sandbox's outputs cannot be stored", "instance", o.Sandbox, "error", err)
	}
	defer context.AfterFunc(ctx, closed)() // the sandbox's memory is free then, whatever requests are under way
	defer closed()
	h := &handler{server: s, sandbox: sb}
	limited := serve.Limit(l, serve.Crowd{All: connectionsMost, Each: connectionsMost})
	err = serve.HTTP(ctx, h, grace, s.config.Log, func(hs *http.Server) { hs.IdleTimeout = idleTimeout })(limited)
	if err != nil && ctx.Err() == nil {
		s.config.Log.Error("a sandbox's S3 is not served any more", "instance", sb.id, "error", err)
	}
}

// find returns the sandbox of an offer. One that another daemon has described is adopted.
func (s *Server) find(o endpoints.Offer) (*sandbox, error) {
	get := func() *sandbox {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.sandboxes[o.Sandbox]
	}
	if o.Name != name {
		return nil, fmt.Errorf("it is an endpoint %.64q", o.Name)
	}
	if sb := get(); sb != nil {
		return sb, nil
	}
	if err := s.config.Adopt(o.Sandbox); err != nil {
		return nil, err
	}
	if sb := get(); sb != nil {
		return sb, nil
	}
	return nil, errors.New("it has not asked for one")
}

// Left implements endpoints.Server.
func (s *Server) Left(o endpoints.Offer) {
	why := fmt.Sprintf("a container has %s of its own, and uses that; remove it from the container", o.Left)
	if o.Left == "hostNetwork" {
		why = "a pod with hostNetwork has no loopback of its own; remove hostNetwork: true"
	}
	s.config.Log.Warn("a container goes without S3 on the node", "instance", o.Sandbox, "why", why)
	s.mu.Lock()
	sb := s.sandboxes[o.Sandbox]
	s.mu.Unlock()
	if sb != nil {
		_, _ = sb.outputs.open(nil) // there is none to open
	}
	if f := s.config.Function(o.Sandbox); f != "" {
		s.config.Event(&nodeapi.Event{Function: f, Reason: reasonLeft, Field: filterapi.AnnotationS3,
			Message: "S3 on the node is not used: " + why})
	}
}

// function is in whose name a sandbox has its objects.
func (s *Server) function(sb *sandbox) string {
	if f := s.config.Function(sb.id); f != "" {
		return f
	}
	return sb.own()
}

// own is a name that stands for a function's, of a sandbox that is none's.
func (sb *sandbox) own() string { return sb.namespace + "/" + sb.id }
