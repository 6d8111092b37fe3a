package ingress

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/engine"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/source"
)

// Values of tracing.Degraded on requests.
const (
	// degradedNoReference: the function has a stored input, and the request names none.
	degradedNoReference = "NoInputReference"
	// degradedNoHint: the gateway's filter has not named the input. It is not loaded, or was
	// skipped.
	degradedNoHint = "NoInputHint"
	// degradedNoFile: the request has a body of its own, and the instance no directory where
	// the input could appear.
	degradedNoFile = "NoInputFile"
)

// parked is one request in the node's hands.
type parked struct {
	id        string            // empty when it was malformed
	function  *nodeapi.Function // nil until it is known to be deployed
	reference string
	input     *engine.Input // nil: the request has no stored input, or another node fetches it
	body      *clientBody
	depth     int // of calls of functions by functions
	// tell has the daemon that handed the request over know how far it is.
	tell  func(progress string)
	began time.Time
	// deadline is when placement, instance and input must be there.
	deadline time.Time
}

// inputs are those that the request has here: a stored one, or its body.
func (p *parked) inputs() []*engine.Input {
	return slices.DeleteFunc([]*engine.Input{p.input, p.body.input}, func(i *engine.Input) bool { return i == nil })
}

// deliveryGrace is how much longer than its ready timeout a request may wait before it
// is delivered: an instance that is late says so itself by then. It is below the 5 s
// that the gateway adds to ready and request timeout, so that whoever is delivered at
// the last moment still has its whole request timeout, and the daemon the last word.
const deliveryGrace = 2 * time.Second

// serve parks one request, has answer answer it, and says what became of it.
func (in *Ingress) serve(w http.ResponseWriter, r *http.Request, answer func(context.Context, *http.Request, *parked) error) {
	began := time.Now()
	defer in.crowd.enter(w)()
	body := newClientBody(r)
	r, forget := whileThere(r)
	defer forget()
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := tracer.Start(ctx, tracing.Activation, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	p := &parked{body: body, depth: depth(r.Header), tell: func(string) {}}
	defer p.body.leave(http.NewResponseController(w))
	err := in.park(ctx, r, p, began)
	if err != nil {
		err = in.verdict(r, err)
	} else {
		err = in.hold(ctx, p, func() error {
			err := in.receive(ctx, w, r, p)
			if err == nil {
				err = answer(ctx, r, p)
			}
			return in.verdict(r, err) // before the client is no more listened to
		})
	}
	in.metrics.observe(p.function.GetName(), began, err)
	if err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
		in.fail(w, r, p, err)
	}
}

// whileThere returns the request with a context that also ends when its client leaves before the
// body was read to its end. forget is called when the request is over.
func whileThere(r *http.Request) (_ *http.Request, forget func()) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 { // the server sees it by itself
		return r, func() {}
	}
	ctx, leave := context.WithCancelCause(r.Context())
	unwatch := serve.OnLeft(ctx, func() { leave(errClientGone) })
	return r.WithContext(ctx), func() { unwatch(); leave(nil) }
}

// park reads what the request is, and has its input fetched from now on. On error the
// request holds nothing.
func (in *Ingress) park(ctx context.Context, r *http.Request, p *parked, began time.Time) error {
	id, ref := r.Header.Get(filterapi.HeaderRequest), r.Header.Get(filterapi.HeaderInput)
	named := id != ""
	if !named {
		id = nodeapi.NewRequestID()
	}
	if !nodeapi.IsRequestID(id) {
		return problem.New(http.StatusBadRequest, "RequestIDMalformed", filterapi.HeaderRequest, filterapi.HeaderRequest+" must be 32 lower-case hexadecimal digits")
	}
	p.id = id
	wait, cancel := in.waiting(ctx)
	defer cancel()
	f, err := in.functions.get(wait, r.Header.Get(filterapi.HeaderFunction), r.Host)
	if err != nil {
		return err
	}
	p.function, p.began, p.deadline = f, began, began.Add(f.GetReadyTimeout().AsDuration()+deliveryGrace)
	span := trace.SpanFromContext(ctx)
	if f.GetHasInput() && !named && ref == "" { // whatever the gateway has loaded
		if ref, err = source.Name(f.GetInputTemplate(), r.URL.RequestURI(), r.Header); err != nil {
			return err
		}
		degraded := degradedNoHint
		if ref == "" {
			degraded = degradedNoReference
		}
		span.SetAttributes(tracing.Degraded.String(degraded))
	}
	span.SetAttributes(tracing.Function.String(f.GetName()), tracing.FaaSName.String(f.GetName()), tracing.Request.String(id),
		tracing.FaaSInvocationID.String(id), tracing.FaaSTrigger.String(tracing.TriggerHTTP), tracing.Node.String(in.node))
	if err := in.held.take(id, f.GetName()); err != nil {
		return err
	}
	if ref != "" && f.GetHasInput() {
		p.reference = ref
		in.fetch(ctx, p)
	}
	return nil
}

// fetch has the request's stored input brought here, if it has one.
func (in *Ingress) fetch(ctx context.Context, p *parked) {
	if p.reference == "" || p.input != nil {
		return
	}
	p.input = in.engine.Fetch(ctx, fetchRequest(p.id, p.function, p.reference))
	in.hints.drop(p.id)
}

func fetchRequest(id string, f *nodeapi.Function, reference string) engine.Request {
	return engine.Request{ID: id, Function: f.GetName(), Store: f.GetStore(), Reference: reference, Limit: f.GetInputLimit()}
}

// hold has a parked request answered and lets go of all that it held, also when a
// handler panics: a request that counts for ever would keep its function from
// scaling to zero.
func (in *Ingress) hold(ctx context.Context, p *parked, answer func() error) error {
	name := p.function.GetName()
	in.controlPlane.Hold(name, 1)
	defer in.controlPlane.Hold(name, -1)
	in.metrics.parked.WithLabelValues(name).Inc()
	defer in.metrics.parked.WithLabelValues(name).Dec()
	defer in.held.drop(p.id)
	defer in.release(ctx, p)
	defer in.forget(ctx, p)
	return answer()
}

// release lets go of the input, once its span is told.
func (in *Ingress) release(ctx context.Context, p *parked) {
	if p.input == nil {
		return
	}
	tellFetch(ctx, p)
	in.hints.drop(p.id) // one that came after the request
	p.input.Release()
	p.input = nil
}

// waiting returns a context for what a request waits for before anybody has it: it
// also ends when the ingress is closed.
func (in *Ingress) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(in.stopping, func() { cancel(errStopping) })
	return ctx, func() {
		forget()
		cancel(nil)
	}
}

// verdict says what an error means for the request as a whole.
func (in *Ingress) verdict(r *http.Request, err error) error {
	switch {
	case err == nil || isBroken(err):
		return err
	case r.Context().Err() != nil:
		return errClientGone
	case errors.Is(err, context.Canceled) && in.stopping.Err() != nil:
		return errStopping
	}
	return err
}

// brokenOff is a ResponseWriter of this process, that can be told what no connection can: why an
// answer ends early.
type brokenOff interface{ BrokeOff(why error) }

// fail is the one place where a request's failure is told: to the caller, the log and
// the operator.
func (in *Ingress) fail(w http.ResponseWriter, r *http.Request, p *parked, err error) {
	name, pr := r.Header.Get(filterapi.HeaderFunction), problem.Of(err)
	if p.function != nil {
		name = p.function.GetName()
	}
	log := in.log.With("function", name, "request", p.id, "reason", pr.Title)
	if errors.Is(err, errClientGone) {
		log.Info("the client went away")
	} else {
		log.Warn("a request failed", "error", err)
		if p.function != nil && !isReported(err) {
			in.controlPlane.Event(&nodeapi.Event{Function: name, Reason: pr.Title, Message: pr.Detail, Field: pr.Field})
		}
	}
	if isBroken(err) {
		// The server would wait for more of a body that pauses, before it lets go.
		_ = http.NewResponseController(w).SetReadDeadline(past)
		if told, is := w.(brokenOff); is {
			told.BrokeOff(err)
		}
		panic(http.ErrAbortHandler) // the only way to tell the gateway that the answer is not whole
	}
	if p.id != "" {
		w.Header().Set(filterapi.HeaderRequest, p.id)
	}
	if p.body.closeUnread(w.Header()) && !errors.Is(err, errClientGone) {
		linger(w)
	}
	if isUndelivered(err) {
		w.Header().Set(filterapi.HeaderUndelivered, pr.Title)
	}
	problem.Write(w, pr, name, p.id)
}
