// Package coordinator joins the control plane's parts. What nodes say (nodes.Handler) and what
// operators ask (admin.Backend) goes to the platform, and the platform's state goes to nodes and
// gateways. Local and Cluster are the two platforms; what is the same on both is common.
package coordinator

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/control-plane/activation"
	"github.com/headstart-mesh/headstart/control-plane/budget"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/nodes"
	"github.com/headstart-mesh/headstart/control-plane/pass"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/survey"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/control-plane/trigger"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// weighEvery is the time between two looks for other weights.
const weighEvery = time.Second

// Platform is what both platforms hear and tell.
type Platform interface {
	platform.Platform
	// Recovered is closed when State is complete after a start.
	Recovered() <-chan struct{}
	NodeLeft(node string)
	// Load is what all daemons of the node have in their hands together.
	Load(node string, inFlight map[string]int32)
	Event(function string, e event.Event)
	// Runs tells whether the node has an instance of the function.
	Runs(node, function string) bool
}

// common is what needs to know the platform by Platform only.
type common struct {
	Nodes        *nodes.Server
	Survey       *survey.Survey
	Gateways     *xds.Server // by their nodes' relays
	platform     Platform
	activator    *activation.Activator
	triggers     *trigger.Teller
	passes       *pass.Teller
	budget       *budget.Server
	planner      *routing.Planner
	events       *event.Log
	stores       stores.Stores
	destinations destinations.Destinations
	traces       *trace.Store
	log          *slog.Logger

	// tenants are, by node, the namespaces whose objects it may have.
	tenants func() map[string][]string
	// known says whether enough is known to tell the gateways for the first time; nil: always.
	known func(state platform.State, connected []string, now time.Time) bool
	// published tells others of a state; the caller holds mu.
	published func(platform.State)

	mu      sync.Mutex      // who tells others of a state tells the newest
	routed  bool            // the gateways were told
	weights routing.Weights // as the gateways have them
}

// Parts are what a coordinator is made of on each platform.
type Parts struct {
	Stores       stores.Stores
	Destinations destinations.Destinations
	Traces       *trace.Store
	// Key signs what requests are bound to; nil: nothing is signed.
	Key     ed25519.PrivateKey
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// newCommon makes what is common; inCharge says whether it is this control plane that does what only one may do, nil:
// always.
func newCommon(p Parts, gateways xds.Config, inCharge func() bool) *common {
	daemons := nodes.New(p.Log)
	gateways.Verify = verifyNode
	c := &common{Nodes: daemons, Survey: survey.New(daemons, p.Metrics, p.Log), Gateways: xds.New(gateways, p.Log),
		triggers: trigger.NewTeller(daemons), passes: pass.NewTeller(daemons, p.Key), events: &event.Log{}, stores: p.Stores, destinations: p.Destinations, traces: p.Traces, log: p.Log}
	daemons.SetDestinations(p.Destinations.Messages())
	c.budget = budget.NewServer(p.Destinations, daemons, inCharge)
	daemons.SetBudget(c.budget)
	if p.Key != nil {
		daemons.SetKeys(&nodeapi.Keys{Keys: [][]byte{p.Key.Public().(ed25519.PublicKey)}})
	}
	c.planner = routing.New(c.Survey, p.Metrics)
	daemons.SetObserver(c.Survey)
	return c
}

// begin takes the platform, and has h hear the nodes.
func (c *common) begin(p Platform, h nodes.Handler, parts Parts) {
	c.platform = p
	c.activator = activation.New(p, p, c.Nodes, parts.Key, parts.Metrics, c.log)
	c.Nodes.SetHandler(h)
}

// What the nodes say.

// Activate implements nodes.Handler.
func (c *common) Activate(ctx context.Context, node string, a *nodeapi.Activate) *nodeapi.ControlMessage {
	c.noteUnsampled(ctx, a)
	return c.activator.Activate(ctx, node, a)
}

// noteUnsampled remembers a request that leaves no spans: somebody may ask for its trace.
func (c *common) noteUnsampled(ctx context.Context, a *nodeapi.Activate) {
	ctx = tracing.Continue(ctx, a.GetTraceparent())
	if s := oteltrace.SpanContextFromContext(ctx); s.IsValid() && !s.IsSampled() {
		c.traces.Unsampled(a.GetRequest())
	}
}

// Load implements nodes.Handler.
func (c *common) Load(node string, inFlight map[string]int32) {
	c.platform.Load(node, inFlight)
	for function := range inFlight {
		c.Survey.Sends(node, function)
	}
}

// Event implements nodes.Handler.
func (c *common) Event(node string, e *nodeapi.Event) {
	c.platform.Event(e.GetFunction(), event.Event{
		Reason: e.GetReason(), Message: e.GetMessage(), Field: e.GetField(), Node: node,
	})
}

// verifyNode lets a daemon speak only for the node that its certificate names.
func verifyNode(ctx context.Context, nodeID string) error {
	name, err := peertls.Peer(ctx)
	if err != nil {
		return err
	}
	if name != nodeID {
		return fmt.Errorf("the certificate of %q does not speak for node %q", name, nodeID)
	}
	return nil
}

// What is told to them.

// keepPublished publishes at once and at each change, and weighs in between, until ctx ends.
func (c *common) keepPublished(ctx context.Context) {
	changes := c.platform.Watch(ctx)
	tick := time.NewTicker(weighEvery)
	defer tick.Stop()
	c.Publish()
	for {
		select {
		case _, open := <-changes:
			if !open {
				return
			}
			c.Publish()
		case <-tick.C:
			c.weigh()
			c.passes.Tell(c.tenants(), time.Now())
		}
	}
}

// Publish tells gateways first where instances are: that is what requests wait for.
func (c *common) Publish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.platform.State()
	c.Survey.SetState(state)
	c.route(state, true)
	c.passes.Tell(c.tenants(), time.Now())
	if c.published != nil {
		c.published(state)
	}
}

// weigh tells the gateways of other weights, if it is time for some.
func (c *common) weigh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.route(c.platform.State(), false)
}

// route tells the gateways where instances are and how to spread requests over them, unless
// neither has changed; the caller holds mu. They keep what they have until the first time.
func (c *common) route(state platform.State, changed bool) {
	now, names := time.Now(), slices.Collect(maps.Keys(c.Nodes.Connected()))
	if !c.routed && c.known != nil && !c.known(state, names, now) {
		return
	}
	w := c.planner.Plan(state, names, now)
	if !changed && c.routed && maps.Equal(w, c.weights) {
		return
	}
	c.routed, c.weights = true, w
	if err := c.Gateways.Update(state, w); err != nil {
		c.log.Error("the gateways could not be told all; they keep what they have of the rest", "error", err)
	}
}

// message tells nodes which functions there are.
func (c *common) message(all []platform.Function, of func(platform.Function) *nodeapi.Function) *nodeapi.Functions {
	m := &nodeapi.Functions{Functions: make([]*nodeapi.Function, 0, len(all)), Stores: c.stores.Messages()}
	for _, f := range all {
		if !f.Deleting {
			m.Functions = append(m.Functions, of(f))
		}
	}
	return m
}

// What the operator asks.

// Weights implements admin.Backend.
func (c *common) Weights(function string) (routing.Explanation, bool) {
	return c.planner.Explain(function, time.Now())
}

// Trace implements admin.Backend: with the last lines of the instances that failed in it.
func (c *common) Trace(id string) (trace.Trace, error) {
	t, ok := c.traces.Get(id)
	if !ok {
		return t, c.traces.Absent(id)
	}
	return t.Explain(c.events.LastLines), nil
}

// Traces implements admin.Backend.
func (c *common) Traces(namespace string) trace.Listing { return c.traces.List(namespace) }
