// Package local is the platform of one machine: functions from manifests, placed on
// the nodes that have registered, from zero on activation and back to zero when idle.
package local

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Nodes are where instances run. NodeJoined and NodeLeft tell which there are.
type Nodes interface {
	// Send sends one message to one node, after those sent before.
	Send(node string, m *nodeapi.ControlMessage) error
	// Keeps is what they keep. Nodes that do not say so are left out.
	Keeps() map[string]*nodeapi.Keeps
}

// Routes are where requests come from.
type Routes interface {
	// Settled returns once no gateway uses an endpoint that State no longer has.
	Settled(ctx context.Context) error
}

// Platform implements platform.Platform.
type Platform struct {
	nodes  Nodes
	routes Routes
	events *event.Log
	log    *slog.Logger
	disk   disk

	recovered chan struct{}
	// life ends with Run; what drains in the background does not outlive it.
	life     context.Context
	end      context.CancelFunc
	draining sync.WaitGroup

	watchers platform.Watchers

	mu         sync.Mutex
	generation int64 // the last one given to a function
	functions  map[string]platform.Function
	instances  map[string]*instance
	jobs       map[string]*job // by their instance's id
	joined     map[string]bool
	left       map[string]time.Time // since when a node is away
	awaited    map[string]bool      // nodes from before a restart that are not back yet
	activity   platform.Activity
}

type instance struct {
	platform.Instance
	drained bool // nothing uses it any more, its node is to stop it
}

// Open returns the platform with the functions that stateFile holds.
func Open(stateFile string, nodes Nodes, routes Routes, events *event.Log, log *slog.Logger) (*Platform, error) {
	p := &Platform{nodes: nodes, routes: routes, events: events, log: log, disk: disk{path: stateFile}, recovered: make(chan struct{}),
		functions: map[string]platform.Function{}, instances: map[string]*instance{}, jobs: map[string]*job{}, joined: map[string]bool{},
		left: map[string]time.Time{}, awaited: map[string]bool{}, activity: platform.NewActivity()}
	saved, err := p.disk.load()
	if err != nil {
		return nil, err
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.generation = saved.Generation
	for _, f := range saved.Functions {
		p.functions[f.Name] = f
	}
	for _, n := range saved.Nodes {
		p.awaited[n] = true
	}
	if len(p.awaited) == 0 {
		close(p.recovered)
	}
	return p, nil
}

// State implements platform.Platform. It is sorted by name and id.
func (p *Platform) State() platform.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s platform.State
	for _, name := range slices.Sorted(maps.Keys(p.functions)) {
		s.Functions = append(s.Functions, p.functions[name])
	}
	for _, id := range slices.Sorted(maps.Keys(p.instances)) {
		s.Instances = append(s.Instances, p.instances[id].Instance)
	}
	return s
}

// Runs tells whether the node has an instance of the function. Each node runs all workflows.
func (p *Platform) Runs(node, function string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.functions[function].Workflow != nil {
		return true
	}
	for _, in := range p.instances {
		if in.Node == node && in.Function == function {
			return true
		}
	}
	return false
}

// Watch implements platform.Platform.
func (p *Platform) Watch(ctx context.Context) <-chan struct{} { return p.watchers.Watch(ctx) }

// changed tells the watchers.
func (p *Platform) changed() { p.watchers.Changed() }

// deployed returns a function that takes requests; the caller holds mu.
func (p *Platform) deployed(name string) (platform.Function, bool) {
	f, ok := p.functions[name]
	return f, ok && !f.Deleting
}

// remove forgets an instance that is gone, and with the last one its function, if that
// was only waiting for it; the caller holds mu.
func (p *Platform) remove(in *instance) {
	delete(p.instances, in.ID)
	p.forgetDeleted(in.Function)
	p.changed()
}

// forgetDeleted ends a deletion when no instance is left; the caller holds mu.
func (p *Platform) forgetDeleted(function string) {
	if !p.functions[function].Deleting {
		return
	}
	for _, in := range p.instances {
		if in.Function == function {
			return
		}
	}
	delete(p.functions, function)
	p.activity.Forget(function)
}
