// Package pods is the set of a node's instances where Kubernetes runs them. The control
// plane says which there are; this package finds out when they are ready, and gives
// their sandboxes the directory that inputs appear in.
package pods

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/instance"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const (
	// announceTimeout is how long a request may be ahead of the news of its instance: a
	// few round trips between nodes and control plane.
	announceTimeout = 2 * time.Second
	// abandoned is the age from which a directory is removed that neither a pod of the set nor
	// a container has, while another daemon may be making it: as good as any that is longer
	// than two daemons are there. Without another one such a directory goes at once.
	abandoned = time.Hour
	// forgotten is that age while a container has the directory, for all that was heard: its
	// pod may run for long before its Service is annotated. It bounds what shims leave whose
	// last word found no daemon, which is an empty directory each.
	forgotten = 30 * 24 * time.Hour
	// sweepInterval is how often such directories are looked for.
	sweepInterval = 10 * time.Minute
)

// Config is what a set is made of.
type Config struct {
	// Dir is the absolute path of the pods' directories. The host has them under the same
	// path, and on one file system with the buffer.
	Dir string
	// Memory is for inputs in memory, nil for none.
	Memory *staging.Memory
	// Functions returns a function by its name, nil if it is not known.
	Functions func(name string) *nodeapi.Function
	// Succeeds: another daemon has the pods, too, and still ends its requests, whose inputs
	// are in Dir.
	Succeeds bool
	// Sockets serve the pods' sockets; nil: they have none.
	Sockets instance.Sockets
	// Jobs bring the inputs of those pods that are jobs.
	Jobs instance.Jobs
	// OTLP is the gRPC target for the spans of the shims, empty for none.
	OTLP string
	Log  *slog.Logger
}

// Set holds the node's pods. Its zero value is not usable; see Open.
type Set struct {
	config Config
	dirs   *dirs

	ctx    context.Context
	cancel context.CancelFunc
	probes sync.WaitGroup

	mu        sync.Mutex
	known     bool // the control plane has spoken
	pods      map[string]*pod
	jobs      map[string]*nodeapi.Job
	announced chan struct{} // closed and replaced when a pod is added
}

// Open returns the set without pods, until Set says which there are. The caller has to
// Close it.
func Open(c Config) (*Set, error) {
	d, err := openDirs(c.Dir, c.Memory, !c.Succeeds)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Set{config: c, dirs: d, ctx: ctx, cancel: cancel, pods: map[string]*pod{}, jobs: map[string]*nodeapi.Job{}, announced: make(chan struct{})}
	if err := s.adoptSockets(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the probes and waits for them. The pods are Kubernetes' and go on.
func (s *Set) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.probes.Wait()
	s.dirs.close()
}

// Set replaces the pods that the node has.
func (s *Set) Set(m *nodeapi.Instances) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[string]*pod, len(m.GetInstances()))
	for _, status := range m.GetInstances() {
		p := s.pods[status.GetId()]
		if p == nil {
			p = newPod(status)
		}
		now[status.GetId()] = p
		p.update(status)
		s.probe(p)
	}
	jobs := s.setJobs(m.GetJobs())
	before, beforeJobs := s.pods, s.jobs
	s.pods, s.jobs = now, jobs
	for id, p := range before {
		if now[id] == nil {
			p.fail(problem.InstanceGone())
			s.left(id)
		}
	}
	for id := range beforeJobs {
		if jobs[id] == nil {
			s.config.Jobs.End(id)
			s.left(id)
		}
	}
	close(s.announced)
	s.announced = make(chan struct{})
	if first := !s.known; first {
		s.known = true
		s.sweep()
	}
}

// left lets go of the directory of a pod that the set has no more, at once if none of its
// containers has it; the caller holds mu.
func (s *Set) left(id string) {
	if s.has(id) {
		return // it is another thing still
	}
	removed, err := s.dirs.remove(id)
	if err != nil {
		s.config.Log.Error("a pod has left files", "instance", id, "error", err)
	}
	if !removed {
		s.dirs.leave(id)
	}
}

// Run removes now and then what pods left, until ctx ends.
func (s *Set) Run(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.mu.Lock()
			if s.known {
				s.sweep()
			}
			s.mu.Unlock()
		}
	}
}

// sweep removes the directories of pods that are gone; the caller holds mu.
func (s *Set) sweep() {
	keep := make(map[string]bool, len(s.pods)+len(s.jobs))
	for id := range maps.Keys(s.pods) {
		keep[id] = true
	}
	for id := range maps.Keys(s.jobs) {
		keep[id] = true
	}
	now := time.Now()
	before := now
	if s.config.Succeeds {
		before = now.Add(-abandoned)
	}
	if err := s.dirs.sweep(keep, before, now.Add(-forgotten)); err != nil {
		s.config.Log.Error("what pods left cannot be removed", "error", err)
	}
}

// Ready waits until the pod takes requests and returns where, or the *problem.Problem that
// keeps it from that. A pod that is starting is probed for as long as somebody waits.
func (s *Set) Ready(ctx context.Context, id string) (ingress.Endpoint, error) {
	p, err := s.find(ctx, id)
	if err != nil {
		return ingress.Endpoint{}, err
	}
	s.wait(ctx, p)
	defer s.leave(p)
	for {
		s.mu.Lock()
		at, done, err, changed := p.at, p.settled(), p.failure, p.changed
		s.mu.Unlock()
		switch {
		case err != nil:
			return ingress.Endpoint{}, err
		case done:
			return at, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ingress.Endpoint{}, ctx.Err()
		}
	}
}

// find returns the pod, waiting a little for it to be announced: a request from another
// node can overtake the control plane's message.
func (s *Set) find(ctx context.Context, id string) (*pod, error) {
	late := time.NewTimer(announceTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		p, announced := s.pods[id], s.announced
		s.mu.Unlock()
		if p != nil {
			return p, nil
		}
		select {
		case <-announced:
		case <-late.C:
			return nil, problem.InstanceGone()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Inputs is where the pod's containers see its inputs, nil when they do not: then requests
// carry their input in the body alone. known is false when the pod is gone.
func (s *Set) Inputs(id string) (dir *staging.Dir, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[id] == nil {
		return nil, false
	}
	return s.dirs.inputs(id), true
}

// address reads an address that the control plane has sent, invalid when there is none.
func address(s string) netip.AddrPort {
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 || at.Addr().IsUnspecified() {
		return netip.AddrPort{}
	}
	return at
}
