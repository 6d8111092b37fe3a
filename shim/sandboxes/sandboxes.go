// Package sandboxes is the set of a node's sandboxes: which there are, when they take requests,
// and what each of them needs. Two runtimes fill it, Local and Kubelet.
package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const (
	// announceTimeout is how long a request may be ahead of the news of its instance: a
	// few round trips between nodes and control plane.
	announceTimeout = 2 * time.Second
	// goneMemory is how long a request may be behind the end of its instance, and is
	// still told why it ended: the dial to this node alone may take 5 s.
	goneMemory = 10 * time.Second
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/sandboxes")

// Config is what a set is made of.
type Config struct {
	// Dir is the absolute path of the sandboxes' directories. The host has them under the same
	// path, and on one file system with the buffer.
	Dir string
	// Memory is for inputs in memory, nil for none.
	Memory *staging.Memory
	// Providers bring what the sandboxes need beside the directory of their inputs.
	Providers []Provider
	// Jobs bring the inputs of jobs; nil: the node has none.
	Jobs Jobs
	// Volumes bring the volumes of sandboxes; nil: the node has none.
	Volumes Volumes
	// Succeeds: another daemon has the sandboxes, too, and still ends its requests, whose
	// inputs are in Dir.
	Succeeds bool
	// OTLP is the gRPC target for the spans of the shims, empty for none.
	OTLP string
	// Callers are the daemon's addresses, where those are not the node's own.
	Callers []netip.Addr
	// Stop has a shim end the program of a pod for which it has closed the sandbox.
	Stop func(ctx context.Context, sandbox string) error
	// Open has a shim open again what it has closed.
	Open func(ctx context.Context, sandbox string) error
	// Alone is closed when no other daemon has sandboxes any more; nil: none had.
	Alone <-chan struct{}
	// Event tells the operator something; nil: nobody wants to know.
	Event func(*nodeapi.Event)
	Log   *slog.Logger
}

// runtime makes and ends the sandboxes of a set, and says which there are. Its errors are what
// shims are answered.
type runtime interface {
	// enter is asked what a container needs that is being made, and which trace it belongs to.
	enter(context.Context, *nodeapi.DescribeRequest) (n *needs, traceparent string, err error)
	// starting is asked what a container needs whose program is to start.
	starting(*nodeapi.StageRequest) (*needs, error)
	// making is asked what a container needs that is being made and has been described, and for its trace.
	making(*nodeapi.MountsRequest) (n *needs, traceparent string, err error)
	// sandbox is what is known of a sandbox that was described: by this daemon, or by another one of the node.
	sandbox(id string) (Sandbox, error)
	// left is told of a container that is gone.
	left(*nodeapi.GoneRequest) error
	// awaited is told that a request waits for an instance, until done is called.
	awaited(ctx context.Context, id string) (done func())
	// replace ends the program of an instance that takes no more requests.
	replace(id string)
	// closed is told that the sandbox of a container is closed, or that it is not. Its program has not started. The caller holds the
	// set's mu.
	closed(in *instance, container string)
}

// Set holds the node's sandboxes and answers their shims (nodeapi.SandboxesServer).
type Set struct {
	nodeapi.UnimplementedSandboxesServer
	config  Config
	tree    *tree
	runtime runtime
	handing handing

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	instances map[string]*instance
	gone      map[string]departure // by id, for goneMemory
	announced News
	serving   map[string]*served // by function
}

// served are the instances of a function that take any request, sorted. They are never changed.
type served struct {
	ids     []string
	changed News
}

// instance is a sandbox that takes requests, or will.
type instance struct {
	id, function string
	// job: it runs once and takes no requests, and is no function's.
	job bool

	// Guarded by the set's mu.
	at      Endpoint
	ready   bool
	failure error // a *problem.Problem, for those who wait
	changed News
	// withdrawn: it takes no requests but those that are bound to it.
	withdrawn bool
	// closed: nothing leaves the sandbox but answers. open is why not, in words for its owner; empty: nobody has said.
	closed bool
	open   string
}

type departure struct {
	at  time.Time
	why *problem.Problem
}

// open returns a set without sandboxes, whose runtime is still to be given.
func open(c Config) (*Set, error) {
	t, err := openTree(c.Dir, c.Memory)
	if err != nil {
		return nil, err
	}
	if c.Jobs != nil {
		c.Providers = append([]Provider{c.Jobs}, c.Providers...)
	}
	if c.Volumes != nil {
		c.Providers = append(c.Providers, c.Volumes)
	}
	s := &Set{config: c, tree: t, handing: handing{of: map[string]*needs{}},
		instances: map[string]*instance{}, gone: map[string]departure{}, serving: map[string]*served{}}
	t.gone = func(id string) {
		s.handing.forget(id)
		for _, p := range c.Providers {
			p.Release(id)
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Close ends what the set does by itself and waits for it. Sandboxes whose programs take requests
// go on: a daemon's restart stops no function.
func (s *Set) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	s.tree.close()
}

// Adopt brings again what a sandbox needs that has been described: another daemon of the node may have done that.
func (s *Set) Adopt(id string) error {
	sb, err := s.runtime.sandbox(id)
	if err == nil {
		_, err = s.bring(sb)
	}
	return err
}

// bring has everything brought that a sandbox needs.
func (s *Set) bring(sb Sandbox) (*needs, error) {
	inputs, err := s.tree.inputs(sb.ID)
	if err != nil {
		return nil, err
	}
	sb.tree, sb.Inputs = s.tree, inputs
	n := &needs{sandbox: sb.ID, all: []Need{s.tree.need(sb.ID), s.gate(sb)}}
	for _, p := range s.config.Providers {
		need, err := p.Bring(sb)
		switch {
		case err == nil:
			n.all = append(n.all, need)
		case need.Wait == WaitFail:
			return nil, err
		case !sb.runs || !errors.Is(err, fs.ErrNotExist): // else an earlier version has made it without
			s.config.Log.Warn("a sandbox goes without something that it needs", "instance", sb.ID, "error", err)
		}
	}
	return n, nil
}

// add makes an instance known; the caller holds mu, or the set alone.
func (s *Set) add(id, function string) *instance {
	in := &instance{id: id, function: function}
	s.instances[id] = in
	delete(s.gone, id)
	s.announced.Tell()
	return in
}

// Serving are the node's instances of a function that take any request. Changed is closed when they are others.
func (s *Set) Serving(function string) (ids []string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.serving[function]
	if of == nil {
		of = &served{}
		s.serving[function] = of
	}
	return of.ids, of.changed.Next()
}

// serve has an instance be among those that Serving returns, if it takes any request; the caller holds mu, or the set alone.
func (s *Set) serve(in *instance) {
	of := s.serving[in.function]
	if of == nil {
		of = &served{}
		s.serving[in.function] = of
	}
	at, is := slices.BinarySearch(of.ids, in.id)
	serves := !in.job && in.ready && !in.withdrawn && in.failure == nil && s.instances[in.id] == in
	switch {
	case serves == is:
		return
	case serves:
		of.ids = slices.Insert(slices.Clone(of.ids), at, in.id)
	default:
		of.ids = slices.Delete(slices.Clone(of.ids), at, at+1)
	}
	of.changed.Tell()
	if len(of.ids) == 0 { // those who wait ask again
		delete(s.serving, in.function)
	}
}

// Withdraw has an instance take no requests but those that are bound to it.
func (s *Set) Withdraw(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.instances[id]; in != nil {
		in.withdrawn = true
		s.serve(in)
	}
}

// Replace has an instance take no more requests, and its program end: that cannot be had back.
func (s *Set) Replace(id string) {
	s.Withdraw(id)
	s.runtime.replace(id)
}

// Ready waits until the instance takes requests and returns where, or the *problem.Problem that
// keeps it from that, as a problem.TooLate if it did before.
func (s *Set) Ready(ctx context.Context, id string) (Endpoint, error) {
	if !s.has(id) {
		s.runtime.awaited(ctx, id)() // the runtime remembers it until the instance is known
	}
	in, err := s.find(ctx, id)
	if err != nil {
		return Endpoint{}, err
	}
	defer s.runtime.awaited(ctx, id)()
	for {
		s.mu.Lock()
		at, ready, failure, changed := in.at, in.ready, in.failure, in.changed.Next()
		s.mu.Unlock()
		switch {
		case failure != nil:
			return Endpoint{}, failure
		case ready:
			return at, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Endpoint{}, ctx.Err()
		}
	}
}

func (s *Set) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instances[id] != nil
}

// find returns the instance, waiting a little for it to be announced.
func (s *Set) find(ctx context.Context, id string) (*instance, error) {
	return Announced(ctx, announceTimeout, problem.InstanceGone(), func() (*instance, <-chan struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if in := s.instances[id]; in != nil {
			return in, nil, nil
		}
		if left, gone := s.gone[id]; gone {
			return nil, nil, problem.TooLate{Problem: left.why}
		}
		return nil, s.announced.Next(), nil
	})
}

// Function is the name of the function whose instance it is, empty if it is none's.
func (s *Set) Function(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.instances[id]
	if in == nil || in.job {
		return ""
	}
	return in.function
}

// Inputs is where the instance sees its inputs, nil when it does not: then requests carry their
// input in the body alone. known is false when the instance is gone.
func (s *Set) Inputs(id string) (dir *staging.Dir, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.instances[id] == nil {
		return nil, false
	}
	dir, _ = s.tree.inputs(id) // a sandbox without the shim has none
	return dir, true
}

// Describe answers what belongs in the sandbox of a container.
func (s *Set) Describe(ctx context.Context, r *nodeapi.DescribeRequest) (*nodeapi.DescribeResponse, error) {
	n, traceparent, err := s.runtime.enter(ctx, r)
	if err != nil {
		return nil, err
	}
	s.handing.expect(r.GetSandbox(), n)
	return n.describe(traceparent, s.config.OTLP), nil
}

// Stage answers when the program of a container may start. Of a need that cannot be had it has
// words for the function's owner, and nothing that tells of the node.
func (s *Set) Stage(ctx context.Context, r *nodeapi.StageRequest) (*nodeapi.StageResponse, error) {
	n, err := s.runtime.starting(r)
	if err != nil {
		return nil, err
	}
	if err := n.await(ctx); err != nil {
		return nil, unmet(ctx, err)
	}
	return &nodeapi.StageResponse{}, nil
}

// Mounts answers with a container's volumes. Of one that cannot be had it has words for the function's owner.
func (s *Set) Mounts(ctx context.Context, r *nodeapi.MountsRequest) (*nodeapi.MountsResponse, error) {
	n, traceparent, err := s.runtime.making(r)
	if err != nil {
		return nil, err
	}
	mounts, err := n.volumes(tracing.Continue(ctx, n.trace(traceparent)))
	if err != nil {
		return nil, unmet(ctx, err)
	}
	return &nodeapi.MountsResponse{Mounts: mounts}, nil
}

// reasonNotClosed is the reason of the event of a sandbox from which more than answers could leave.
const reasonNotClosed = "SandboxNotClosed"

// Closed takes a shim's word of whether a container's sandbox is closed.
func (s *Set) Closed(_ context.Context, r *nodeapi.ClosedRequest) (*nodeapi.ClosedResponse, error) {
	id := r.GetSandbox()
	if r.GetPod() != nil {
		id = r.GetPod().SandboxID()
	}
	s.mu.Lock()
	in := s.instances[id]
	if in != nil {
		in.closed, in.open = r.GetOpen() == "", r.GetOpen()
		s.runtime.closed(in, r.GetPod().GetContainer())
	}
	s.mu.Unlock()
	switch {
	case in == nil:
		return nil, status.Error(codes.NotFound, "no such sandbox")
	case r.GetOpen() != "":
		s.notClosed(in.function, r.GetOpen())
	}
	return &nodeapi.ClosedResponse{}, nil
}

// gate is the need of a sandbox that is to be closed. The shim keeps in touch where the daemon cannot end programs by itself.
func (s *Set) gate(sb Sandbox) Need {
	if sb.Gate == nil {
		return Need{}
	}
	g := proto.CloneOf(sb.Gate)
	for _, from := range s.config.Callers {
		g.Callers = append(g.Callers, from.String())
	}
	return Need{Gate: g, Streams: g.GetContainer() != ""}
}

// opens is why nobody closes a sandbox of a function, in words for its owner; empty: it can be closed.
func opens(f *nodeapi.Function, s3 string, c *nodeapi.Connections) string {
	switch {
	case f.TakesInput():
		return "its inputs are objects of a store, which may be others when its turn comes"
	case s3 != "":
		return "it has S3 on the node, by which others would see what it does"
	case !destinations.Unseen(c):
		return "it is given connections, by which others would see what it does"
	}
	return ""
}

// notClosed tells the operator why a function works on requests in their turn only.
func (s *Set) notClosed(function, why string) {
	if s.config.Event != nil {
		s.config.Event(&nodeapi.Event{Function: function, Reason: reasonNotClosed, Field: filterapi.AnnotationSpeculation,
			Message: fmt.Sprintf("the function works on requests in their turn only: %.300s", why)})
	}
}

// IsClosed tells whether nothing leaves an instance's sandbox but answers, and no other daemon has requests for it.
func (s *Set) IsClosed(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.instances[id]
	return in != nil && in.closed && s.alone()
}

// alone tells whether no other daemon has the sandboxes.
func (s *Set) alone() bool {
	if s.config.Alone == nil {
		return true
	}
	select {
	case <-s.config.Alone:
		return true
	default:
		return false
	}
}

// unmet says of a need that it cannot be had.
func unmet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.FailedPrecondition, problem.Of(err).Error())
}

// Gone lets go of a container.
func (s *Set) Gone(_ context.Context, r *nodeapi.GoneRequest) (*nodeapi.GoneResponse, error) {
	s.handing.left(r.GetSandbox())
	if err := s.runtime.left(r); err != nil {
		return nil, err
	}
	return &nodeapi.GoneResponse{}, nil
}
