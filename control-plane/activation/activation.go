// Package activation answers a node that parks a request: it has the platform bind the
// request to an instance, and tells the nodes concerned before anything is ready.
package activation

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// awayTimeout is how long a request waits for somebody who can take it to its instance:
	// a daemon that is replaced is back by then, and so are all after a restart of the
	// control plane. It leaves most of the 15 s after which the node gives up to the rest.
	awayTimeout = 8 * time.Second
	awayPoll    = 100 * time.Millisecond
	// inputsTimeout is how long a request with inputs waits for the daemon of a ready instance's node, without which it goes there
	// without them: less than any ready timeout with the node's 2 s beyond, and than the 3 s after which the node asks another control plane.
	inputsTimeout = 2 * time.Second

	reasonCallerUnknown = "CallerUnknown"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/control-plane/activation")

// Placer is the part of platform.Platform that binds requests.
type Placer interface {
	Activate(ctx context.Context, r platform.Request) (platform.Instance, error)
}

// Nodes reaches the nodes.
type Nodes interface {
	Send(node string, m *nodeapi.ControlMessage) error
	Connected() map[string]*nodeapi.Register
}

// Callers knows which functions run where.
type Callers interface {
	// Runs tells whether the node has an instance of the function.
	Runs(node, function string) bool
}

// Activator binds requests.
type Activator struct {
	placer  Placer
	callers Callers
	key     ed25519.PrivateKey
	nodes   Nodes
	log     *slog.Logger
	total   *prometheus.CounterVec
	// vain are the nodes for whose daemon requests with inputs have waited in vain since it was connected.
	vain sync.Map
}

// New returns an activator and registers its metrics. key signs capabilities; nil: there are none.
func New(p Placer, c Callers, n Nodes, key ed25519.PrivateKey, r prometheus.Registerer, log *slog.Logger) *Activator {
	a := &Activator{placer: p, callers: c, key: key, nodes: n, log: log}
	a.total = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headstart_activations_total",
		Help: "Requests that were bound to an instance, or refused, by the outcome."}, []string{"function", "outcome"})
	r.MustRegister(a.total)
	return a
}

// Activate binds the request that node parks.
func (a *Activator) Activate(ctx context.Context, node string, m *nodeapi.Activate) *nodeapi.ControlMessage {
	ctx = tracing.Continue(ctx, m.GetTraceparent())
	_, span := tracer.Start(ctx, tracing.Placement, trace.WithAttributes(
		tracing.Function.String(m.GetFunction()), tracing.Request.String(m.GetRequest())))
	defer span.End()
	// Not the span's own context: the sandbox is a matter of the request, not of the
	// placement, which is over when its making begins.
	in, bound, err := a.place(ctx, node, m)
	if err != nil {
		r := refusal(err)
		span.SetStatus(codes.Error, r.Reason)
		a.log.Warn("a request was refused", "function", m.GetFunction(), "request", m.GetRequest(), "reason", r.Reason, "error", err)
		a.total.WithLabelValues(known(m.GetFunction(), err), r.Reason).Inc()
		return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Refused{Refused: &nodeapi.Refused{
			Request: m.GetRequest(), Status: int32(r.Status), Reason: r.Reason, Message: r.Message, Field: r.Field}}}
	}
	if in.Relay == nil {
		span.SetAttributes(tracing.Node.String(in.Node), tracing.Instance.String(in.ID))
	}
	outcome := "Hot"
	switch {
	case in.Relay != nil:
		outcome = "Relayed"
	case bound.GetCold():
		outcome = "Cold"
	}
	a.total.WithLabelValues(m.GetFunction(), outcome).Inc()
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Bound{Bound: bound}}
}

// place has the platform choose an instance and binds the request to it. It is chosen anew
// while nobody can take the request there.
func (a *Activator) place(ctx context.Context, node string, m *nodeapi.Activate) (in platform.Instance, bound *nodeapi.Bound, err error) {
	if caller := m.GetCaller(); caller != "" && !a.callers.Runs(node, caller) {
		return in, nil, &platform.Refusal{Status: http.StatusForbidden, Reason: reasonCallerUnknown,
			Field: filterapi.HeaderCaller, Message: fmt.Sprintf("node %s calls for %s, and has no instance of that", node, caller)}
	}
	began := time.Now()
	for {
		in, err = a.placer.Activate(ctx, platform.Request{ID: m.GetRequest(), Function: m.GetFunction(), Node: node, Caller: m.GetCaller(),
			More: m.GetMore()})
		waited := time.Since(began)
		if err == nil {
			bound, err = a.bind(in, node, m, waited)
		}
		if r, is := errors.AsType[*platform.Refusal](err); !is || !r.Passing || waited > awayTimeout {
			return in, bound, err
		}
		select {
		case <-ctx.Done():
			return in, nil, err
		case <-time.After(awayPoll):
		}
	}
}

// bind says where the request goes, and tells the instance's node if that is another, for whose daemon it has waited.
func (a *Activator) bind(in platform.Instance, node string, m *nodeapi.Activate, waited time.Duration) (*nodeapi.Bound, error) {
	if in.Relay != nil {
		return &nodeapi.Bound{Request: m.GetRequest(), Cold: in.Phase != platform.Ready, RelayAddress: in.Relay.Address, RelayHeaders: in.Relay.Headers}, nil
	}
	bound := &nodeapi.Bound{Request: m.GetRequest(), Instance: in.ID, Node: in.Node, Cold: in.Phase != platform.Ready}
	if in.Node == node {
		return bound, nil
	}
	target, connected := a.nodes.Connected()[in.Node]
	if connected {
		a.vain.Delete(in.Node)
	} else if waited > inputsTimeout {
		a.vain.Store(in.Node, true)
	}
	switch {
	case connected:
		bound.PeerAddress, bound.Capability = target.GetPeerAddress(), a.sign(in, node, m)
		a.expect(in, m, bound.GetCapability())
		return bound, nil
	case in.Phase == platform.Ready && in.MeshSNI == "" && (m.GetInput() == "" && len(m.GetInputs()) == 0 || a.inVain(in.Node)):
		// Nobody over there can take the request, but the instance itself can. Its inputs take the daemon.
		return &nodeapi.Bound{Request: m.GetRequest(), RelayAddress: in.Address.String()}, nil
	}
	return nil, &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NodeDaemonAway", Passing: true,
		Message: fmt.Sprintf("the function's instance is on node %s, whose headstart-node is not connected; see that it runs there", in.Node)}
}

func (a *Activator) inVain(node string) bool {
	_, vain := a.vain.Load(node)
	return vain
}

// sign returns the capability by which node hands the request over.
func (a *Activator) sign(in platform.Instance, node string, m *nodeapi.Activate) string {
	if a.key == nil {
		return ""
	}
	return capability.Sign(a.key, capability.Binding{Request: m.GetRequest(), Function: m.GetFunction(), Instance: in.ID,
		Input: m.GetInput(), Inputs: reference.NewInputs("", m.GetInputs()).String(), Source: node, Target: in.Node,
		Caller: m.GetCaller()}, time.Now().Add(capability.Life))
}

// expect has the target begin before the request itself gets there, and know the capability that the
// request's node does not hand over.
func (a *Activator) expect(in platform.Instance, m *nodeapi.Activate, signed string) {
	if m.GetHandsOver() {
		signed = ""
	}
	if m.GetInput() == "" && len(m.GetInputs()) == 0 && signed == "" {
		return
	}
	err := a.nodes.Send(in.Node, &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Expect{Expect: &nodeapi.Expect{
		Request: m.GetRequest(), Function: m.GetFunction(), Instance: in.ID, Input: m.GetInput(), Inputs: m.GetInputs(),
		Traceparent: m.GetTraceparent(), Capability: signed}}})
	if err != nil {
		a.log.Warn(
			"a node could not be informed of a coming request; it learns of it with the request itself", "node",
			in.Node, "error", err,
		)
	}
}

// known keeps names that may be no function's out of the metrics' labels: the platform
// knows the function if it refuses it for another reason, and has been asked.
func known(function string, err error) string {
	var r *platform.Refusal
	if !errors.As(err, &r) || r.Status == http.StatusNotFound || r.Reason == reasonCallerUnknown {
		return ""
	}
	return function
}

func refusal(err error) *platform.Refusal {
	var r *platform.Refusal
	if errors.As(err, &r) {
		return r
	}
	return &platform.Refusal{Status: http.StatusInternalServerError, Reason: "Internal", Message: "the control plane could not place the request; its log says why"}
}
