package main

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/control-plane/activation"
	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/stores"
	"github.com/headstart-mesh/headstart/control-plane/survey"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/control-plane/trigger"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// gatherTime is how long a control plane that has just begun waits for the nodes, which try
// once a second to connect.
const gatherTime = 3 * time.Second

// distancesWithin is how long it waits to hear how far nodes are from each other: they are
// told within a second or two of whom to measure, and tell what they know within five.
const distancesWithin = 10 * time.Second

// cluster joins the parts on Kubernetes: it hands what nodes (nodes.Handler) say and what
// operators (admin.Backend) ask to the platform, and the platform's state to nodes,
// gateways and the mesh.
type cluster struct {
	nodes     *nodes.Server
	gateways  *xds.MeshServer
	mesh      *istio.Writer
	platform  *kube.Platform
	activator *activation.Activator
	triggers  *trigger.Teller
	survey    *survey.Survey
	planner   *routing.Planner
	events    *event.Log
	stores    stores.Stores
	traces    *trace.Store
	// inCharge says whether it is this control plane that writes the mesh's configuration.
	inCharge func() bool
	log      *slog.Logger

	mu        sync.Mutex // who tells others of a state tells the newest
	functions *nodeapi.Functions
	told      map[string]*nodeapi.Instances // by node that is connected
	began     time.Time                     // when there was first something to tell gateways
	routed    bool                          // they were told
	weights   xds.Weights                   // as they have them
}

// What the nodes say.

// Joined tells the node what runs on it: from then on it hears of changes.
func (c *cluster) Joined(node string, _ *nodeapi.Register) {
	c.platform.NodeJoined(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[node] = nil
	c.tellInstances(node)
	c.triggers.Joined(node)
	c.triggers.Tell(c.platform.State().Functions)
}

// Left forgets what the node was told.
func (c *cluster) Left(node string) {
	c.platform.NodeLeft(node)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, node)
	c.triggers.Tell(c.platform.State().Functions)
}

// Instance is nothing to go by: the API server says how pods are.
func (c *cluster) Instance(string, *nodeapi.InstanceStatus) {}

func (c *cluster) Activate(ctx context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage {
	noteUnsampled(ctx, c.traces, a)
	return c.activator.Activate(ctx, node, a)
}

func (c *cluster) Load(node string, inFlight map[string]int32) {
	c.platform.Load(node, inFlight)
	for function := range inFlight {
		c.survey.Sends(node, function)
	}
}

func (c *cluster) Event(node string, e *nodeapi.Event) {
	c.platform.Event(e.GetFunction(), event.Event{Reason: e.GetReason(), Message: e.GetMessage(), Field: e.GetField(), Node: node})
}

// What is told to them.

// publishChanges keeps nodes, gateways and the mesh up to date until ctx ends.
func (c *cluster) publishChanges(ctx context.Context) {
	keepPublished(c.platform.Watch(ctx), c.publish, c.weigh)
}

// lead does what only one control plane may do, as long as it is this one's turn. All nodes
// follow it meanwhile: it knows which instances it withdraws.
func (c *cluster) lead(ctx context.Context) {
	c.nodes.SetInCharge(true)
	defer c.nodes.SetInCharge(false)
	c.mesh.Run(ctx)
}

// gather waits until the nodes are back, before it is said which of them consume streams.
func (c *cluster) gather(ctx context.Context) {
	select {
	case <-time.After(gatherTime):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.triggers.Begin(c.platform.State().Functions)
	case <-ctx.Done():
	}
}

// publish tells gateways first where instances are: that is what requests wait for.
func (c *cluster) publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.platform.State()
	c.survey.SetState(state)
	c.route(state, true)
	c.tellFunctions(state.Functions)
	c.triggers.Tell(state.Functions)
	for node := range c.told {
		c.tellInstances(node)
	}
	config, err := xds.PluginConfig(state, hintCluster, istio.IngressSocket)
	if err != nil {
		c.log.Error("the filter keeps its last configuration", "error", err)
		return
	}
	c.mesh.Set(istio.Desired{Functions: istio.Functions(state, xds.AssignmentName), PluginConfig: config})
}

// weigh tells the gateways of other weights, if it is time for some.
func (c *cluster) weigh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.route(c.platform.State(), false)
}

// route tells the gateways where instances are and how to spread requests over them, unless
// neither has changed; the caller holds mu. At first it waits until that is known: meanwhile
// gateways go on with what they have.
func (c *cluster) route(state platform.State, changed bool) {
	connected, now := slices.Collect(maps.Keys(c.nodes.Connected())), time.Now()
	if c.began.IsZero() {
		c.began = now
	}
	first := !c.routed
	if first && now.Sub(c.began) < distancesWithin && !c.planner.Known(state, connected, now) {
		return
	}
	w := c.planner.Plan(state, connected, now)
	if !changed && !first && maps.Equal(w, c.weights) {
		return
	}
	c.routed, c.weights = true, w
	if err := c.gateways.Update(state, w); err != nil {
		c.log.Error("some endpoints cannot be told to the gateways", "error", err)
	}
}

// tellFunctions tells all nodes which functions there are; the caller holds mu.
func (c *cluster) tellFunctions(functions []platform.Function) {
	m := &nodeapi.Functions{}
	for _, f := range functions {
		m.Functions = append(m.Functions, kube.Message(f))
	}
	for _, s := range c.stores {
		m.Stores = append(m.Stores, s.Message())
	}
	if c.functions != nil && proto.Equal(c.functions, m) {
		return
	}
	c.functions = m
	c.nodes.SetFunctions(m)
}

// tellInstances tells a node what has changed of its own; the caller holds mu.
func (c *cluster) tellInstances(node string) {
	m := c.platform.InstancesOf(node)
	if before := c.told[node]; before != nil && proto.Equal(before, m) {
		return
	}
	if err := c.nodes.Send(node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Instances{Instances: m}}); err != nil {
		return // it is told again when it is back
	}
	c.told[node] = m
}

// What the operator asks.

var errUseKubectl = &platform.Refusal{Status: http.StatusMethodNotAllowed, Reason: "UseKubectl",
	Message: "on Kubernetes functions are Services; annotate and delete those with kubectl"}

// Apply refuses: the API server is where functions are deployed.
func (c *cluster) Apply(io.Reader) ([]admin.Applied, error) { return nil, errUseKubectl }

// Delete refuses as well.
func (c *cluster) Delete(string) error { return errUseKubectl }

// RunJob refuses, too: a Job of Kubernetes has the same annotations.
func (c *cluster) RunJob(context.Context, io.Reader) (admin.JobOutcome, error) {
	return admin.JobOutcome{}, errUseKubectl
}

// Weights says why a function's requests are spread as they are.
func (c *cluster) Weights(function string) (routing.Explanation, bool) {
	return c.planner.Explain(function, time.Now())
}

// Trace returns a trace by its id or by its request's.
func (c *cluster) Trace(id string) (trace.Trace, error) { return traceOf(c.traces, c.events, id) }

// Traces lists what this control plane has.
func (c *cluster) Traces(namespace string) trace.Listing { return c.traces.List(namespace) }

// Logs refuses: the kubelet has them.
func (c *cluster) Logs(context.Context, admin.LogOptions, func(admin.LogLine) error) error {
	return &platform.Refusal{Status: http.StatusMethodNotAllowed, Reason: "UseKubectl", Message: "on Kubernetes functions are pods; use kubectl logs"}
}

// Status is all that the control plane knows, as of now.
func (c *cluster) Status() admin.Status {
	state, now := c.platform.State(), time.Now()
	s := admin.Status{Version: nodeapi.Version, Platform: admin.Kubernetes, InCharge: c.inCharge(), Nodes: []admin.Node{}, Functions: []admin.Function{}, Mesh: c.meshStatus(), Routing: routingProblems(c.gateways.Problems(), c.planner.Problems(), c.survey.Problems(now), c.nodes.Refusals())}
	connected, twins, lacking := c.nodes.Connected(), c.nodes.Twins(now), c.nodes.StoreProblems()
	for _, name := range slices.Sorted(maps.Keys(connected)) {
		n := admin.Node{Name: name, Version: connected[name].GetVersion(), Problems: append(twinProblems(twins[name], now), storeProblems(lacking[name])...)}
		for _, in := range state.Instances {
			if in.Node == name {
				n.Instances++
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for _, f := range state.Functions {
		s.Functions = append(s.Functions, c.function(f, state))
	}
	for _, name := range c.platform.Refused() {
		s.Functions = append(s.Functions, admin.Function{Name: name, Refused: true, Hosts: []string{}, Instances: []admin.Instance{}, Events: c.events.Of(name)})
	}
	return s
}

func (c *cluster) function(f platform.Function, state platform.State) admin.Function {
	about := c.platform.About(f.Name)
	fn := admin.Function{Name: f.Name, Hosts: f.Hosts, Image: f.Image, Input: f.Policy.InputAsGiven(), Workload: about.Workload, Scaler: about.Scaler,
		Instances: []admin.Instance{}, Events: c.events.Of(f.Name)}
	for _, in := range append(about.Instances, state.Instances...) {
		if in.Function == f.Name {
			fn.Instances = append(fn.Instances, admin.Instance{ID: in.ID, Pod: podName(in.ID), Node: in.Node, Phase: in.Phase, Address: in.Address})
		}
	}
	for _, e := range state.Endpoints {
		shown := slices.ContainsFunc(fn.Instances, func(in admin.Instance) bool { return in.Address == e.Address })
		if e.Function == f.Name && !e.Relay && !shown {
			fn.Endpoints = append(fn.Endpoints, e.Address)
		}
	}
	return fn
}

// podName is the middle of namespace_name_uid, none of which has an underscore.
func podName(id string) string {
	parts := strings.Split(id, "_")
	if len(parts) != 3 {
		return ""
	}
	return parts[1]
}

// meshStatus is nil in a control plane that does not look at the mesh: another one does.
func (c *cluster) meshStatus() *admin.Mesh {
	if !c.inCharge() {
		return nil
	}
	s := c.mesh.Status()
	m := &admin.Mesh{Installed: s.Installed, Objects: s.Objects}
	for _, p := range s.Problems {
		m.Problems = append(m.Problems, admin.MeshProblem{Object: p.Object, Cause: string(p.Cause), Message: p.Message, Fix: p.Fix})
	}
	if err := c.platform.Healthy(); err != nil {
		m.Problems = append(m.Problems, admin.MeshProblem{Object: "Kubernetes API", Cause: string(istio.Unavailable), Message: err.Error(), Fix: "see the message"})
	}
	return m
}
