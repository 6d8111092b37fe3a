package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/control-plane/activation"
	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/functionlog"
	"github.com/headstart-mesh/headstart/control-plane/knative"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/local"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/policy/quantity"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/stores"
	"github.com/headstart-mesh/headstart/control-plane/survey"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/control-plane/trigger"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
)

const (
	// applyTimeout bounds how long deploying waits for the gateways. One that has just started
	// takes no routes while it compiles its filters, 10 s on a busy machine.
	applyTimeout = 20 * time.Second
	// weighEvery is how often it is looked whether it is time for other weights.
	weighEvery = time.Second
)

// controlPlane joins the parts: it hands what nodes (nodes.Handler), gateways and the
// operator (admin.Backend) say to the platform, and the platform's state to them.
type controlPlane struct {
	nodes       *nodes.Server
	gateways    *xds.Server
	platform    *local.Platform
	activator   *activation.Activator
	triggers    *trigger.Teller
	survey      *survey.Survey
	planner     *routing.Planner
	events      *event.Log
	stores      stores.Stores
	traces      *trace.Store
	gatewayPort uint32
	runDir      string
	stateDir    string
	// largestInput is what the nodes' buffers can take, in bytes; 0: not known.
	largestInput int64
	log          *slog.Logger

	publishing sync.Mutex  // who tells others of a state tells the newest
	weights    xds.Weights // as the gateways have them
}

// What the nodes say.

func (c *controlPlane) Joined(node string, r *nodeapi.Register) {
	c.platform.NodeJoined(node, r.GetInstances())
	c.triggers.Joined(node)
	c.triggers.Tell(c.platform.State().Functions)
}

func (c *controlPlane) Left(node string) {
	c.platform.NodeLeft(node)
	c.triggers.Tell(c.platform.State().Functions)
}

func (c *controlPlane) Instance(node string, s *nodeapi.InstanceStatus) {
	c.platform.InstanceChanged(node, s)
}

func (c *controlPlane) Activate(ctx context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage {
	noteUnsampled(ctx, c.traces, a)
	return c.activator.Activate(ctx, node, a)
}

func (c *controlPlane) Load(node string, inFlight map[string]int32) {
	c.platform.Load(node, inFlight)
	for function := range inFlight {
		c.survey.Sends(node, function)
	}
}

func (c *controlPlane) Event(node string, e *nodeapi.Event) {
	c.platform.Event(e.GetFunction(), event.Event{Reason: e.GetReason(), Message: e.GetMessage(), Field: e.GetField(), Node: node})
}

// What the gateways say.

func (c *controlPlane) routed(gateway string, loads []xds.Load) {
	busy := make(map[string]uint64, len(loads))
	for _, l := range loads {
		busy[l.Function] += l.InFlight + l.Issued
	}
	c.platform.Routed(gateway, busy)
	c.survey.Gateway(gateway, loads)
}

// verifyGateway lets an Envoy speak only for the node that its certificate names.
func verifyGateway(ctx context.Context, nodeID string) error {
	name, err := peertls.Peer(ctx)
	if err != nil {
		return err
	}
	if name != nodeID {
		return fmt.Errorf("the certificate of %q does not speak for gateway %q", name, nodeID)
	}
	return nil
}

// routingProblems is what is not routed as it should be, for the operator.
func routingProblems(found ...[]xds.Problem) []admin.RoutingProblem {
	var out []admin.RoutingProblem
	for _, p := range slices.Concat(found...) {
		out = append(out, admin.RoutingProblem{Function: p.Function, Gateways: p.Gateways, Message: p.Message})
	}
	return out
}

// storeProblems are the stores that a node cannot use, for the operator.
func storeProblems(found []nodes.StoreProblem) (all []admin.NodeProblem) {
	for _, p := range found {
		all = append(all, admin.NodeProblem{
			Message: fmt.Sprintf("cannot use store %q: %s", p.Store, p.Message),
			Fix:     "correct the store's secret for this node (docs/reference/stores.md#secrets); it counts from the next request on",
		})
	}
	return all
}

// twinProblems is what is wrong with a node that has these daemons, for the operator.
func twinProblems(t nodes.Twins, now time.Time) []admin.NodeProblem {
	if len(t.Daemons) == 0 {
		return nil
	}
	var all []string
	for _, d := range t.Daemons[max(len(t.Daemons)-shownDaemons, 0):] {
		said := d.Address + " (" + d.Version
		if d.Process != d.Address {
			said += ", process " + d.Process
		}
		all = append(all, said+")")
	}
	if more := len(t.Daemons) - shownDaemons; more > 0 {
		all = slices.Insert(all, 0, fmt.Sprintf("%d older", more))
	}
	return []admin.NodeProblem{{
		Message: fmt.Sprintf("%d daemons have had this name for %s: %s; only the newest, the last of these, counts", len(t.Daemons), now.Sub(t.Since).Round(time.Second), strings.Join(all, ", ")),
		Fix:     "if they are on two machines, give one of these another name, by a certificate of its own; if on one, an update does not end: see why the older daemon does not",
	}}
}

// shownDaemons is how many of one name fit a line.
const shownDaemons = 3

// What is told to them.

// publishChanges keeps gateways and nodes up to date until ctx ends.
func (c *controlPlane) publishChanges(ctx context.Context) {
	select {
	case <-c.platform.Recovered(): // until then hot functions would look cold
	case <-ctx.Done():
		return
	}
	c.triggers.Begin(c.platform.State().Functions)
	keepPublished(c.platform.Watch(ctx), c.publish, c.weigh)
}

// keepPublished publishes at once and at each change, and weighs in between, until there are no
// changes any more.
func keepPublished(changes <-chan struct{}, publish, weigh func()) {
	tick := time.NewTicker(weighEvery)
	defer tick.Stop()
	publish()
	for {
		select {
		case _, open := <-changes:
			if !open {
				return
			}
			publish()
		case <-tick.C:
			weigh()
		}
	}
}

func (c *controlPlane) publish() {
	c.publishing.Lock()
	defer c.publishing.Unlock()
	state := c.platform.State()
	c.survey.SetState(state)
	c.route(state, true)
}

// weigh tells the gateways of other weights, if it is time for some.
func (c *controlPlane) weigh() {
	c.publishing.Lock()
	defer c.publishing.Unlock()
	c.route(c.platform.State(), false)
}

// route tells the gateways where requests go, unless neither state nor weights have changed;
// the caller holds publishing.
func (c *controlPlane) route(state platform.State, changed bool) {
	connected := c.nodes.Connected()
	w := c.planner.Plan(state, slices.Collect(maps.Keys(connected)), time.Now())
	if !changed && maps.Equal(w, c.weights) {
		return
	}
	var gateways []xds.Gateway
	for name, r := range connected {
		gateways = append(gateways, xds.Gateway{ID: name, IngressSocket: r.GetIngressSocket(), HintSocket: r.GetHintSocket()})
	}
	if err := c.gateways.Update(state, w, gateways); err != nil {
		c.log.Error("the gateways could not be updated; they keep what they have", "error", err)
		return
	}
	c.weights = w
}

// Settled implements local.Routes.
func (c *controlPlane) Settled(ctx context.Context) error {
	select {
	case <-c.platform.Recovered():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.publish()
	return c.gateways.Settled(ctx)
}

// tellNodes tells the nodes what they may serve.
func (c *controlPlane) tellNodes() {
	c.publishing.Lock()
	defer c.publishing.Unlock()
	m := &nodeapi.Functions{}
	functions := c.platform.State().Functions
	for _, f := range functions {
		if !f.Deleting {
			m.Functions = append(m.Functions, local.Message(f))
		}
	}
	for _, s := range c.stores {
		m.Stores = append(m.Stores, s.Message())
	}
	c.nodes.SetFunctions(m)
	c.triggers.Tell(functions)
}

// What the operator says.

func (c *controlPlane) Apply(manifest io.Reader) ([]admin.Applied, error) {
	functions, err := knative.Parse(manifest, c.stores)
	if err != nil {
		return nil, &platform.Refusal{Status: http.StatusUnprocessableEntity, Reason: "ManifestRefused", Message: err.Error()}
	}
	changes, err := c.platform.Apply(functions)
	if err != nil {
		return nil, err
	}
	c.tellNodes()
	// Who deploys a function calls it next: the gateways shall know it by then.
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	if err := c.Settled(ctx); err != nil {
		c.log.Warn("a gateway has not confirmed the functions yet", "error", err)
	}
	applied := make([]admin.Applied, len(functions))
	for i, f := range functions {
		applied[i] = admin.Applied{Function: f.Name, Change: changes[i], Warnings: c.warnings(f)}
	}
	return applied, nil
}

// warnings are what of a function will not work on these nodes.
func (c *controlPlane) warnings(f platform.Function) []string {
	if c.largestInput == 0 || f.Policy.Input == "" || f.Policy.InputLimit <= c.largestInput {
		return nil
	}
	return []string{fmt.Sprintf("%s is %s, but a node's buffer takes inputs of up to %s: requests with larger ones get BufferTooSmall; lower the annotation, or raise --buffer-limit of `headstart up`",
		policy.KeyInputLimit, quantity.Format(f.Policy.InputLimit), quantity.Format(c.largestInput))}
}

func (c *controlPlane) Delete(function string) error {
	if err := c.platform.Delete(function); err != nil {
		return err
	}
	c.tellNodes()
	return nil
}

func (c *controlPlane) RunJob(ctx context.Context, manifest io.Reader) (admin.JobOutcome, error) {
	job, err := knative.ParseJob(manifest, c.stores)
	if err != nil {
		return admin.JobOutcome{}, &platform.Refusal{Status: http.StatusUnprocessableEntity, Reason: "ManifestRefused", Message: err.Error()}
	}
	o, err := c.platform.RunJob(ctx, job)
	if err != nil {
		return admin.JobOutcome{}, err
	}
	return admin.JobOutcome{Job: job.Name, Node: o.Node, Instance: o.Instance, Reason: o.Reason, Message: o.Message, Field: o.Field, ExitCode: o.ExitCode, Log: o.Log, Trace: o.Trace}, nil
}

func (c *controlPlane) Weights(function string) (routing.Explanation, bool) {
	return c.planner.Explain(function, time.Now())
}

func (c *controlPlane) Trace(id string) (trace.Trace, error) { return traceOf(c.traces, c.events, id) }

func (c *controlPlane) Traces(namespace string) trace.Listing { return c.traces.List(namespace) }

// traceOf returns a trace with the last lines of the instances that failed in it.
func traceOf(traces *trace.Store, events *event.Log, id string) (trace.Trace, error) {
	t, ok := traces.Get(id)
	if !ok {
		return t, traces.Absent(id)
	}
	return t.Explain(events.LastLines), nil
}

// noteUnsampled remembers a request that leaves no spans: somebody may ask for its trace.
func noteUnsampled(ctx context.Context, traces *trace.Store, a *nodeapi.Activate) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": a.GetTraceparent()})
	if s := oteltrace.SpanContextFromContext(ctx); s.IsValid() && !s.IsSampled() {
		traces.Unsampled(a.GetRequest())
	}
}

// Logs reads the nodes' files: the embedded platform's are on this machine.
func (c *controlPlane) Logs(ctx context.Context, o admin.LogOptions, to func(admin.LogLine) error) error {
	read := func(tail int, follow bool) error {
		return functionlog.Read(ctx, functionlog.Options{Dir: c.stateDir, Function: o.Function, Tail: tail, Follow: follow},
			func(node, line string) error { return to(admin.LogLine{Node: node, Line: line}) })
	}
	deployed := slices.ContainsFunc(c.platform.State().Functions, func(f platform.Function) bool { return f.Name == o.Function })
	var err error
	if !deployed && o.Follow { // one that is unknown is not waited for
		err = read(0, false)
	}
	if err == nil {
		err = read(o.Tail, o.Follow)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && !deployed:
		return &platform.Refusal{Status: http.StatusNotFound, Reason: "FunctionUnknown", Message: "no such function, and no log of it; `headstart status` lists functions"}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

func (c *controlPlane) Status() admin.Status {
	state, now := c.platform.State(), time.Now()
	s := admin.Status{Version: nodeapi.Version, Nodes: []admin.Node{}, Functions: []admin.Function{}, Routing: routingProblems(c.gateways.Problems(), c.planner.Problems(), c.survey.Problems(now), c.nodes.Refusals())}
	connected, twins, lacking := c.nodes.Connected(), c.nodes.Twins(now), c.nodes.StoreProblems()
	for _, name := range slices.Sorted(maps.Keys(connected)) {
		r := connected[name]
		n := admin.Node{Name: name, Version: r.GetVersion(), Problems: append(twinProblems(twins[name], now), storeProblems(lacking[name])...)}
		if host, _, err := net.SplitHostPort(r.GetPeerAddress()); err == nil {
			n.Gateway = "http://" + net.JoinHostPort(host, strconv.Itoa(int(c.gatewayPort)))
		}
		for _, in := range state.Instances {
			if in.Node == name {
				n.Instances++
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for _, f := range state.Functions {
		fn := admin.Function{Name: f.Name, Hosts: f.Hosts, Image: f.Image, Input: f.Policy.InputAsGiven(), Deleting: f.Deleting, Instances: []admin.Instance{}, Events: c.events.Of(f.Name)}
		for _, in := range state.Instances {
			if in.Function == f.Name {
				fn.Instances = append(fn.Instances, admin.Instance{ID: in.ID, Node: in.Node, Phase: in.Phase, Address: in.Address})
			}
		}
		s.Functions = append(s.Functions, fn)
	}
	var err error
	if s.Parts, err = admin.ReadParts(c.runDir); err != nil {
		c.log.Warn("the status lacks the platform's processes", "error", err)
	}
	return s
}
