// Package ingress is where requests for cold functions wait on a node: it parks them,
// has an instance and their input brought, and delivers them.
//
// The three ways in are the gateway's requests (Gateway), the filters' hints (Hints)
// and requests that another node's daemon hands over (Peers).
package ingress

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/engine"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Header names, as filters/filterapi defines them for the gateway's side.
const (
	headerRequest   = "x-headstart-request"
	headerFunction  = "x-headstart-function"
	headerInput     = "x-headstart-input"
	headerInputFile = "x-headstart-input-file"
	// headerInstance names the target between daemons.
	headerInstance = "x-headstart-instance"
)

// placementTimeout bounds the wait for an instance's binding: control plane restarts
// take about a second, and nobody waits much longer without a word.
const placementTimeout = 15 * time.Second

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/ingress")

var requestID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// ControlPlane is what the ingress asks of the control plane.
type ControlPlane interface {
	// Activate returns where the request is to go, or a *problem.Problem.
	Activate(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error)
	// Hold tells that delta more requests of the function are in the node's hands.
	Hold(function string, delta int32)
	// Event tells the operator something.
	Event(*nodeapi.Event)
}

// Instances are the node's own.
type Instances interface {
	// Ready waits for the instance and returns its address, or a *problem.Problem.
	Ready(ctx context.Context, id string) (netip.AddrPort, error)
	// Inputs is the directory where the instance sees its inputs, nil if it is gone.
	Inputs(id string) *os.Root
}

// Ingress parks and delivers requests.
type Ingress struct {
	node         string
	functions    *Functions
	controlPlane ControlPlane
	instances    Instances
	engine       *engine.Engine
	hints        hints
	peers        http.RoundTripper
	functionSide http.RoundTripper
	metrics      *Metrics
	log          *slog.Logger
}

// New returns the ingress of a node. peers sends requests to other nodes' daemons.
func New(node string, functions *Functions, cp ControlPlane, instances Instances, e *engine.Engine, peers http.RoundTripper, m *Metrics, log *slog.Logger) *Ingress {
	return &Ingress{node: node, functions: functions, controlPlane: cp, instances: instances, engine: e,
		hints: hints{open: map[string]*hint{}}, peers: peers, functionSide: newFunctionTransport(), metrics: m, log: log}
}

// Close lets go of the hints that no request followed, and of idle connections.
func (in *Ingress) Close() {
	in.hints.close()
	if t, ok := in.functionSide.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// parked is one request that waits.
type parked struct {
	id        string
	function  *nodeapi.Function
	reference string
	input     *engine.Input // nil: the request has no stored input
}

// Gateway serves the requests that the node's Envoy sends.
func (in *Ingress) Gateway() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		in.serve(w, r, func(ctx context.Context, p *parked) error {
			bound, err := in.activate(ctx, r, p)
			if err != nil {
				return err
			}
			trace.SpanFromContext(ctx).SetAttributes(tracing.FaaSColdStart.Bool(bound.GetCold()), tracing.Instance.String(bound.GetInstance()))
			if bound.GetPeerAddress() != "" {
				return in.handOver(ctx, w, r, p, bound)
			}
			return in.deliver(ctx, w, r, p, bound.GetInstance())
		})
	})
}

// Peers serves the requests that other nodes' daemons hand over.
func (in *Ingress) Peers() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		instance := r.Header.Get(headerInstance)
		in.serve(w, r, func(ctx context.Context, p *parked) error {
			return in.deliver(ctx, w, r, p, instance)
		})
	})
}

// serve parks one request, has answer answer it, and is the one place where a
// request's failure is told: to the caller, the log, the metrics and the operator.
func (in *Ingress) serve(w http.ResponseWriter, r *http.Request, answer func(context.Context, *parked) error) {
	began := time.Now()
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := tracer.Start(ctx, tracing.Activation, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	name := r.Header.Get(headerFunction)
	p, err := in.park(ctx, r, name)
	if err == nil {
		span.SetAttributes(tracing.Function.String(name), tracing.FaaSName.String(name), tracing.Request.String(p.id),
			tracing.FaaSInvocationID.String(p.id), tracing.FaaSTrigger.String(tracing.TriggerHTTP), tracing.Node.String(in.node))
		w.Header().Set(headerRequest, p.id)
		in.controlPlane.Hold(name, 1)
		in.metrics.parked.WithLabelValues(name).Inc()
		err = answer(ctx, p)
		p.release(ctx)
		in.metrics.parked.WithLabelValues(name).Dec()
		in.controlPlane.Hold(name, -1)
	}
	in.metrics.observe(name, began, err)
	if err == nil {
		return
	}
	var id string
	if p != nil {
		id = p.id
	}
	pr := problem.Of(err)
	span.SetStatus(codes.Error, pr.Title)
	switch {
	case errors.Is(err, errAnswered):
		in.log.Warn("an answer broke off", "function", name, "request", id, "error", err)
		panic(http.ErrAbortHandler) // the only way to tell the gateway that it is not whole
	case r.Context().Err() != nil:
		in.log.Info("the client went away", "function", name, "request", id)
		return
	}
	in.log.Warn("a request failed", "function", name, "request", id, "reason", pr.Title, "error", err)
	if in.functions.known(name) {
		in.controlPlane.Event(&nodeapi.Event{Function: name, Reason: pr.Title, Message: pr.Detail, Field: pr.Field})
	}
	problem.Write(w, pr, name, id)
}

// park reads what the request is, and has its input fetched from now on.
func (in *Ingress) park(ctx context.Context, r *http.Request, name string) (*parked, error) {
	f, err := in.functions.get(ctx, name)
	if err != nil {
		return nil, err
	}
	p := &parked{id: r.Header.Get(headerRequest), function: f}
	switch {
	case p.id == "": // the filter was skipped
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		p.id = hex.EncodeToString(b[:])
	case !requestID.MatchString(p.id):
		return nil, problem.New(http.StatusBadRequest, "RequestIDMalformed", headerRequest, headerRequest+" must be 32 lower-case hexadecimal digits")
	}
	if ref := r.Header.Get(headerInput); ref != "" && f.GetHasInput() {
		p.reference = ref
		p.input = in.engine.Fetch(ctx, fetchRequest(p.id, f, ref))
		in.hints.drop(p.id)
	}
	return p, nil
}

func fetchRequest(id string, f *nodeapi.Function, reference string) engine.Request {
	return engine.Request{ID: id, Function: f.GetName(), Store: f.GetStore(), Reference: reference, Limit: f.GetInputLimit()}
}

// release lets go of the input, once its span is told.
func (p *parked) release(ctx context.Context) {
	if p.input == nil {
		return
	}
	tellFetch(ctx, p)
	p.input.Release()
	p.input = nil
}

// activate asks for an instance.
func (in *Ingress) activate(ctx context.Context, r *http.Request, p *parked) (*nodeapi.Bound, error) {
	ctx, cancel := context.WithTimeout(ctx, placementTimeout)
	defer cancel()
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	type answer struct {
		bound *nodeapi.Bound
		err   error
	}
	asked := make(chan answer, 1)
	go func() {
		b, err := in.controlPlane.Activate(ctx, &nodeapi.Activate{Request: p.id, Function: p.function.GetName(), Traceparent: carrier["traceparent"], Input: p.reference})
		asked <- answer{b, err}
	}()
	failed := make(chan error, 1)
	if p.input != nil {
		// An input that cannot be had fails the request now, not after the placement.
		watch, stop := context.WithCancel(ctx)
		watched := make(chan struct{})
		defer func() { stop(); <-watched }()
		go func() {
			defer close(watched)
			if err := p.input.Wait(watch); err != nil && watch.Err() == nil {
				failed <- err
			}
		}()
	}
	select {
	case a := <-asked:
		return a.bound, a.err
	case err := <-failed:
		cancel()
		<-asked
		return nil, err
	}
}

// deliver waits for instance and input, and hands the request to the function.
func (in *Ingress) deliver(ctx context.Context, w http.ResponseWriter, r *http.Request, p *parked, instance string) error {
	var addr netip.AddrPort
	g, wait := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		addr, err = in.instances.Ready(wait, instance)
		return err
	})
	if p.input != nil {
		g.Go(func() error { return p.input.Wait(wait) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	file, err := in.publish(ctx, p, instance)
	if err != nil {
		return err
	}
	if file != nil {
		defer file.remove()
	}
	return in.forward(ctx, w, r, p, addr)
}

// published is an input's file in a sandbox.
type published struct {
	dir  *os.Root
	name string
}

func (f *published) remove() {
	// The directory is gone with its instance when this fails.
	_ = f.dir.Remove(f.name)
}

// publish makes the input appear in the sandbox, complete.
func (in *Ingress) publish(ctx context.Context, p *parked, instance string) (*published, error) {
	if p.input == nil {
		return nil, nil
	}
	_, span := tracer.Start(ctx, tracing.Transfer, trace.WithAttributes(tracing.TransferKind.String(tracing.TransferLocal)))
	defer span.End()
	dir := in.instances.Inputs(instance)
	if dir == nil {
		return nil, problem.New(http.StatusServiceUnavailable, "InstanceGone", "", "the instance that was to answer is gone; try again")
	}
	if err := p.input.Link(dir, p.id); err != nil {
		return nil, fmt.Errorf("giving the input to the sandbox: %w", err)
	}
	return &published{dir: dir, name: p.id}, nil
}
