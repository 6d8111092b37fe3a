// Package kube is the platform of a Kubernetes cluster. Services that carry headstart.dev/
// annotations, and Knative Services that do, are functions; their pods are instances. What
// the cluster says comes by watches and is in State within the same moment. What is asked
// of the cluster is one thing only: another number of replicas. How many a workload had is kept in a ConfigMap.
package kube

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// Config is what the operator says.
type Config struct {
	// Namespace is the control plane's own.
	Namespace    string
	Stores       stores.Stores
	Destinations destinations.Destinations
	// Namespaces are those that may have functions; none: all may.
	Namespaces []string
	// FunctionsPerNamespace is how many functions a namespace may have; 0: catalog.DefaultFunctionsMost.
	FunctionsPerNamespace int
	// InCharge says whether it is this control plane's turn to scale to zero; nil: always.
	// To scale up is everybody's at all times: the API server refuses whoever is second.
	InCharge func() bool
}

// Platform implements platform.Platform.
type Platform struct {
	clients      Clients
	namespace    string
	reader       catalog.Reader
	destinations destinations.Destinations
	events       *event.Log
	reporter     *reporter
	inCharge     func() bool
	log          *slog.Logger

	recovered chan struct{}
	// life ends with Run, and with it what is under way in the background.
	life       context.Context
	end        context.CancelFunc
	background sync.WaitGroup

	watchers platform.Watchers
	doubts   chan struct{}         // holds a token when doubted has become longer
	verdicts chan *object.Workflow // whose conditions are to be written

	mu         sync.Mutex // guards all that follows
	mirrors    mirrors
	open       bool      // the mirrors had their first lists
	charge     bool      // it was in charge at the last look
	swept      time.Time // when that was
	generation int64     // the last one given to a function
	doubted    []string  // namespaces that are to be read again, in their turn
	functions  map[string]*function
	inside     map[string]map[string]*function // by namespace, then name
	workloads  map[workloadKey]*workload
	problems   map[string][]catalog.Problem // by namespace
	own        map[string]placed            // by the pod's id
	senders    map[string]*senders          // by node
	activity   platform.Activity
	joined     map[string]bool      // nodes whose daemon is connected
	left       map[string]time.Time // since when another node's daemon is away
	gone       map[string]time.Time // since when a node's object is no more
}

// New returns a platform that knows nothing until Run.
func New(c Clients, config Config, events *event.Log, log *slog.Logger) *Platform {
	p := &Platform{clients: c, namespace: config.Namespace, events: events, log: log, destinations: config.Destinations,
		reader:   catalog.Reader{Stores: config.Stores, Namespaces: config.Namespaces, FunctionsMost: config.FunctionsPerNamespace},
		reporter: newReporter(c.Kubernetes, log), recovered: make(chan struct{}), doubts: make(chan struct{}, 1), verdicts: make(chan *object.Workflow, verdictsMost),
		// Nodes may compare generations with those that they had of the control plane before.
		generation: time.Now().Unix(),
		functions:  map[string]*function{}, inside: map[string]map[string]*function{}, workloads: map[workloadKey]*workload{},
		problems: map[string][]catalog.Problem{}, own: map[string]placed{}, senders: map[string]*senders{}, activity: platform.NewActivity(), joined: map[string]bool{}, left: map[string]time.Time{}, gone: map[string]time.Time{}}
	if p.inCharge = config.InCharge; p.inCharge == nil {
		p.inCharge = func() bool { return true }
	}
	p.life, p.end = context.WithCancel(context.Background())
	p.mirrors = p.newMirrors()
	return p
}

// State implements platform.Platform. It is sorted by name and id.
func (p *Platform) State() platform.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := platform.State{Functions: make([]platform.Function, 0, len(p.functions))}
	for _, name := range slices.Sorted(maps.Keys(p.functions)) {
		f := p.functions[name]
		s.Functions = append(s.Functions, f.Function.Function)
		for _, in := range f.instances {
			s.Instances = append(s.Instances, in.Instance)
		}
		s.Endpoints = append(s.Endpoints, f.endpoints...)
	}
	return s
}

// Runs tells whether the node has a pod of the function. Each node runs all workflows.
func (p *Platform) Runs(node, function string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.functions[function]
	if f == nil {
		return false
	}
	if f.Function.Workflow != nil {
		return true
	}
	for _, in := range f.instances {
		if in.Node == node {
			return true
		}
	}
	return false
}

// Watch implements platform.Platform.
func (p *Platform) Watch(ctx context.Context) <-chan struct{} { return p.watchers.Watch(ctx) }

// changed tells the watchers.
func (p *Platform) changed() { p.watchers.Changed() }

// Recovered is closed when State can be believed: when the cluster has said all that it
// had to say at the start.
func (p *Platform) Recovered() <-chan struct{} { return p.recovered }

// Run follows the cluster and scales idle functions to zero, until ctx ends. It is called
// once.
func (p *Platform) Run(ctx context.Context) {
	defer p.close()
	stop := context.AfterFunc(ctx, p.end)
	defer stop()
	p.mirrors.start(p.life, &p.background)
	p.background.Go(func() { p.reporter.run(p.life) })
	p.background.Go(func() { p.tellVerdicts(p.life) })
	p.background.Go(p.recover)
	p.background.Go(func() { p.resolveDoubted(p.life) })
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-tick.C:
			p.sweep()
		}
	}
}

func (p *Platform) close() {
	p.mu.Lock()
	p.end() // under mu: nothing begins in the background after this
	p.mu.Unlock()
	p.background.Wait()
}

// recover reads the whole cluster once all of it is there.
func (p *Platform) recover() {
	for _, settled := range p.mirrors.settled() {
		select {
		case <-settled:
		case <-p.life.Done():
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = true
	p.activity.Pause(startGrace)
	namespaces := map[string]bool{}
	p.mirrors.services.Namespaces(func(ns string) { namespaces[ns] = true })
	p.mirrors.knativeServices.Namespaces(func(ns string) { namespaces[ns] = true })
	for ns := range namespaces {
		p.resolve(ns)
	}
	// Whose pods they are is known only now.
	p.mirrors.pods.Namespaces(p.renote)
	close(p.recovered)
	p.changed()
}
