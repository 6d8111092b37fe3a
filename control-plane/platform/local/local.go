// Package local is the platform of one machine: functions from manifests, placed on
// the nodes that have registered, from zero on activation and back to zero when idle.
package local

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// idLength keeps instance ids below containerd's 76 characters, with room for the
// random part.
const idLength = 50

// Nodes are where instances run.
type Nodes interface {
	// Names of the connected nodes, sorted.
	Names() []string
	// Send sends one message to one node, after those sent before.
	Send(node string, m *nodeapi.ControlMessage) error
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

	retiring  sync.WaitGroup
	recovered chan struct{}
	closing   chan struct{}

	mu        sync.Mutex
	functions map[string]platform.Function
	instances map[string]*platform.Instance
	left      map[string]time.Time // since when a node with instances is away
	awaited   map[string]bool      // nodes from before a restart that are not back yet
	activity  activity
	watchers  map[chan struct{}]bool
}

// Open returns the platform with the functions that stateFile holds.
func Open(stateFile string, nodes Nodes, routes Routes, events *event.Log, log *slog.Logger) (*Platform, error) {
	p := &Platform{nodes: nodes, routes: routes, events: events, log: log, disk: disk{path: stateFile},
		recovered: make(chan struct{}), closing: make(chan struct{}), functions: map[string]platform.Function{}, instances: map[string]*platform.Instance{},
		left: map[string]time.Time{}, awaited: map[string]bool{}, activity: newActivity(), watchers: map[chan struct{}]bool{}}
	saved, err := p.disk.load()
	if err != nil {
		return nil, err
	}
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

// State implements platform.Platform.
func (p *Platform) State() platform.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s platform.State
	for _, name := range slices.Sorted(maps.Keys(p.functions)) {
		s.Functions = append(s.Functions, p.functions[name])
	}
	for _, id := range slices.Sorted(maps.Keys(p.instances)) {
		s.Instances = append(s.Instances, *p.instances[id])
	}
	return s
}

// Watch implements platform.Platform.
func (p *Platform) Watch(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	p.mu.Lock()
	p.watchers[c] = true
	p.mu.Unlock()
	context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, c)
		close(c)
	})
	return c
}

// changed tells the watchers; the caller holds mu.
func (p *Platform) changed() {
	for c := range p.watchers {
		select {
		case c <- struct{}{}:
		default: // a token is there already
		}
	}
}

// Activate implements platform.Platform.
func (p *Platform) Activate(ctx context.Context, r platform.Request) (platform.Instance, error) {
	select {
	case <-p.recovered:
	case <-ctx.Done():
		return platform.Instance{}, ctx.Err()
	}
	connected := p.nodes.Names()
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.functions[r.Function]
	if !ok {
		return platform.Instance{}, &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: "no such function is deployed"}
	}
	p.activity.touch(r.Function)
	if in := p.usable(r.Function, connected); in != nil {
		return *in, nil
	}
	node, err := place(f, r.Node, connected, p.perNode())
	if err != nil {
		return platform.Instance{}, err
	}
	in := &platform.Instance{ID: newID(f.Name), Function: f.Name, Node: node, Phase: platform.Starting}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if err := p.nodes.Send(node, startMessage(in.ID, f, carrier["traceparent"])); err != nil {
		return platform.Instance{}, &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NodeUnavailable",
			Message: "node " + node + " does not take instances now; try again"}
	}
	p.instances[in.ID] = in
	p.changed()
	return *in, nil
}

// usable returns the function's instance if it takes requests, or will.
func (p *Platform) usable(function string, connected []string) *platform.Instance {
	var starting *platform.Instance
	for _, in := range p.instances {
		if in.Function != function || !slices.Contains(connected, in.Node) {
			continue
		}
		switch in.Phase {
		case platform.Ready:
			return in
		case platform.Starting:
			starting = in
		}
	}
	return starting
}

func (p *Platform) perNode() map[string]int {
	n := map[string]int{}
	for _, in := range p.instances {
		n[in.Node]++
	}
	return n
}

// place picks the node: the manifest's own, else the gateway's (the request and its
// answer then cross no network), else the one with the fewest instances.
func place(f platform.Function, gateway string, connected []string, perNode map[string]int) (string, error) {
	if f.Node != "" {
		if !slices.Contains(connected, f.Node) {
			return "", &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NodeUnavailable", Field: "spec.template.spec.nodeSelector",
				Message: fmt.Sprintf("node %q is not connected; nodes are: %s", f.Node, strings.Join(connected, ", "))}
		}
		return f.Node, nil
	}
	if slices.Contains(connected, gateway) {
		return gateway, nil
	}
	if len(connected) == 0 {
		return "", &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NoNode", Message: "no node is connected to the control plane"}
	}
	return slices.MinFunc(connected, func(a, b string) int { return perNode[a] - perNode[b] }), nil
}

func newID(function string) string {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails
	name := strings.ReplaceAll(function, "/", "-")
	return name[:min(len(name), idLength)] + "-" + hex.EncodeToString(b[:])
}

func startMessage(id string, f platform.Function, traceparent string) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Start{Start: &nodeapi.StartInstance{Id: id, Function: Message(f), Traceparent: traceparent}}}
}

// Message is the function as nodes know it.
func Message(f platform.Function) *nodeapi.Function {
	return &nodeapi.Function{
		Name: f.Name, Generation: f.Generation, Image: f.Image, Command: f.Command, Args: f.Args, Env: f.Env, Port: f.Port, ProbePath: f.ProbePath,
		ReadyTimeout: durationpb.New(f.Policy.ReadyTimeout), RequestTimeout: durationpb.New(f.RequestTimeout),
		Store: f.Policy.Store, InputLimit: f.Policy.InputLimit, CpuLimitMillis: f.CPULimitMillis, MemoryLimit: f.MemoryLimit,
		HasInput: f.Policy.Input != "",
	}
}
