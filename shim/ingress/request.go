package ingress

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/proxy"
)

// Values of tracing.Degraded on requests.
const (
	// degradedNoReference: the function has a stored input, and the request names none.
	degradedNoReference = "NoInputReference"
	// degradedNoHint: the gateway's filter has not named the input. It is not loaded, or was
	// skipped.
	degradedNoHint = "NoInputHint"
	// degradedNoFile: an input has a name, or the request has a body of its own, and the instance
	// has no directory where the input could appear.
	degradedNoFile = "NoInputFile"
)

// parked is one request in the node's hands.
type parked struct {
	id       string            // empty when it was malformed
	function *nodeapi.Function // nil until it is known to be deployed
	stored   stored
	// ahead are the inputs that the function reads by S3: they are fetched, and nothing waits for them.
	ahead    stored
	body     *proxy.Body
	received *objects.Input   // the body on its way into the buffer; nil: it does not go there
	depth    int              // of calls of functions by functions
	caller   string           // the function that makes the request, if that is certain
	attempt  *attempt.Attempt // nil: it is its turn
	// tell has the daemon that handed the request over know how far it is.
	tell func(progress string)
	// begun says that the request waits on this node no longer: an instance gets it, or another node.
	begun func()
	began time.Time
	// bound is where it was placed; nil: that was done elsewhere.
	bound *nodeapi.Bound
	// deadline is when placement, instance and input must be there.
	deadline time.Time
}

// count counts the request, when what becomes of it counts.
func (p *parked) count(do func()) {
	if p.attempt != nil {
		p.attempt.Then(do)
		return
	}
	do()
}

// inTurn tells whether what becomes of the request counts.
func (p *parked) inTurn() bool {
	return p.attempt == nil || p.attempt.InTurn()
}

// inputs are those that the request has here: stored ones, and its body.
func (p *parked) inputs() []*objects.Input {
	inputs := []*objects.Input{p.received}
	for _, one := range p.stored {
		inputs = append(inputs, one.input)
	}
	return slices.DeleteFunc(inputs, func(i *objects.Input) bool { return i == nil })
}

// deliveryGrace is how much longer than its ready timeout a request may wait before it
// is delivered: an instance that is late says so itself by then. It is below the 5 s
// that the gateway adds to ready and request timeout, so that whoever is delivered at
// the last moment still has its whole request timeout, and the daemon the last word.
const deliveryGrace = 2 * time.Second

// entrance is one of the ways in.
type entrance struct {
	// admit refuses requests of others than the way is for, and learns who the caller is.
	admit func(*http.Request, *parked) error
	// routed: a route that Headstart has not written may have named the input.
	routed bool
}

// serve parks one request, has answer answer it, and says what became of it.
func (in *Ingress) serve(w http.ResponseWriter, r *http.Request, by entrance,
	answer func(context.Context, *http.Request, *parked) error,
) {
	began := time.Now()
	defer in.crowd.enter(w)()
	keepWebSocketOnly(r.Header)
	body := proxy.NewBody(w, r)
	r, forget := whileThere(r)
	defer forget()
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := tracer.Start(ctx, tracing.Activation, trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	p := &parked{body: body, depth: depth(r.Header), tell: func(string) {}}
	defer p.body.Leave()
	err := in.park(ctx, r, p, began, by)
	if err != nil {
		err = in.verdict(r, err)
	} else {
		err = in.hold(ctx, p, func() error {
			err := in.receive(ctx, r, p)
			if err == nil {
				err = answer(ctx, r, p)
			}
			return in.verdict(r, err) // before the client is no more listened to
		})
	}
	ended := time.Since(began)
	p.count(func() { in.config.Metrics.observe(ctx, p.function.GetName(), ended, err) })
	if err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
		in.fail(w, r, p, err)
	}
}

// keepWebSocketOnly has a request be an ordinary one that asks for another protocol than WebSocket, as
// a server may decide (RFC 9110, section 7.8): behind h2c, say, a function would see requests that
// nobody here has looked at.
func keepWebSocketOnly(h http.Header) {
	if asked := h.Values("Upgrade"); len(asked) != 1 || !strings.EqualFold(asked[0], "websocket") {
		h.Del("Upgrade")
	}
}

// whileThere returns the request with a context that also ends when its client leaves before the
// body was read to its end. forget is called when the request is over.
func whileThere(r *http.Request) (_ *http.Request, forget func()) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 { // the server sees it by itself
		return r, func() {}
	}
	ctx, leave := context.WithCancelCause(r.Context())
	unwatch := serve.OnLeft(ctx, func() { leave(proxy.ErrClientGone) })
	return r.WithContext(ctx), func() { unwatch(); leave(nil) }
}

// park reads what the request is, and has its inputs fetched from now on. On error the
// request holds nothing.
func (in *Ingress) park(ctx context.Context, r *http.Request, p *parked, began time.Time, by entrance) error {
	id := cmp.Or(r.Header.Get(filterapi.HeaderRequest), nodeapi.NewRequestID())
	if !nodeapi.IsRequestID(id) {
		return problem.New(
			http.StatusBadRequest, "RequestIDMalformed", filterapi.HeaderRequest,
			filterapi.HeaderRequest+" must be 32 lower-case hexadecimal digits",
		)
	}
	p.id = id
	if err := by.admit(r, p); err != nil {
		return err
	}
	wait, cancel := in.waiting(ctx)
	defer cancel()
	f, err := in.config.Functions.get(wait, r.Header.Get(filterapi.HeaderFunction), r.Host)
	if err != nil {
		return err
	}
	p.function, p.began, p.deadline = f, began, began.Add(f.GetReadyTimeout().AsDuration()+deliveryGrace)
	span := trace.SpanFromContext(ctx)
	refs, degraded, err := references(r, f, by.routed)
	if err != nil {
		return err
	}
	if degraded != "" {
		span.SetAttributes(tracing.Degraded.String(degraded))
	}
	span.SetAttributes(tracing.Function.String(f.GetName()), tracing.FaaSName.String(f.GetName()), tracing.Request.String(id),
		tracing.FaaSInvocationID.String(id), tracing.FaaSTrigger.String(tracing.TriggerHTTP), tracing.Node.String(in.config.Node))
	if err := in.held.take(id, f.GetName()); err != nil {
		return err
	}
	if p.stored = newStored(refs); f.GetReadByS3() {
		p.stored, p.ahead = nil, p.stored
	}
	in.fetch(ctx, p)
	return nil
}

// references are those of the request's inputs, whatever the gateway has loaded: those that the
// filter has named, and else what the templates make of the request. A filter that knows no inputs
// with names has named the other. routed: a route may have said what no template makes, or the filter
// may not have heard of a new one yet, so the templates are asked again.
func references(r *http.Request, f *nodeapi.Function, routed bool) (refs reference.Inputs, degraded string, err error) {
	refs, err = taken(r.Header, f)
	if err != nil || !f.TakesInput() {
		return nil, "", err
	}
	templates := f.Templates()
	filtered := r.Header.Get(filterapi.HeaderRequest) != ""
	if routed && !made(f, refs) {
		refs, filtered = reference.Inputs{}, false
	} else {
		if filtered || refs[""] != "" {
			templates = templates.Named()
		}
		if r.Header.Get(filterapi.HeaderInputs) != "" {
			templates = templates.Unnamed()
		}
	}
	named, err := source.Name(templates, r.URL.RequestURI(), r.Header)
	switch {
	case err != nil:
		return nil, "", err
	case len(named) > 0:
		degraded = degradedNoHint
	case !filtered && len(refs) == 0:
		degraded = degradedNoReference
	}
	maps.Copy(refs, named)
	return refs, degraded, nil
}

// taken are the references in headers, as far as they are of the function's inputs.
func taken(h http.Header, f *nodeapi.Function) (reference.Inputs, error) {
	named, err := source.ParseNamed(h.Get(filterapi.HeaderInputs))
	if err != nil {
		return nil, err
	}
	return f.Taken(reference.NewInputs(h.Get(filterapi.HeaderInput), named)), nil
}

// hold has a parked request answered and lets go of all that it held, also when a
// handler panics: a request that counts for ever would keep its function from
// scaling to zero.
func (in *Ingress) hold(ctx context.Context, p *parked, answer func() error) error {
	name := p.function.GetName()
	in.config.ControlPlane.Hold(name, 1)
	defer in.config.ControlPlane.Hold(name, -1)
	in.config.Metrics.parked.WithLabelValues(name).Inc()
	defer in.config.Metrics.parked.WithLabelValues(name).Dec()
	p.begun = in.config.Metrics.waits(name, p.attempt == nil)
	defer func() { p.begun() }() // the last one: it may have been placed again
	defer in.held.drop(p.id)
	defer in.release(ctx, p)
	defer in.forget(ctx, p)
	return answer()
}

// waiting returns a context for what a request waits for before anybody has it: it
// also ends when the ingress is closed, or one of the times is over.
func (in *Ingress) waiting(ctx context.Context, until ...time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(in.stopping, func() { cancel(errStopping) })
	overdue := func() {}
	if len(until) > 0 {
		ctx, overdue = context.WithDeadline(ctx, slices.MinFunc(until, time.Time.Compare))
	}
	return ctx, func() {
		overdue()
		forget()
		cancel(nil)
	}
}

// verdict says what an error means for the request as a whole.
func (in *Ingress) verdict(r *http.Request, err error) error {
	switch {
	case err == nil || proxy.IsBroken(err):
		return err
	case r.Context().Err() != nil:
		return proxy.ErrClientGone
	case errors.Is(err, context.Canceled) && in.stopping.Err() != nil:
		return errStopping
	}
	return err
}

// confidant is a ResponseWriter of this process that no caller is behind: it is told all of why a
// request fails, ahead of what a caller would get.
type confidant interface{ Failed(why error) }

// isOwn tells whether w is one.
func isOwn(w http.ResponseWriter) bool {
	_, is := w.(confidant)
	return is
}

// fail is the one place where a request's failure is told: to the caller, the log and
// the operator.
func (in *Ingress) fail(w http.ResponseWriter, r *http.Request, p *parked, err error) {
	name, pr := r.Header.Get(filterapi.HeaderFunction), problem.Of(err)
	if p.function != nil {
		name = p.function.GetName()
	}
	log := in.config.Log.With("function", name, "request", p.id, "reason", pr.Title)
	if errors.Is(err, proxy.ErrClientGone) {
		log.Info("the client went away")
	} else if !p.inTurn() {
		log.Debug("a request failed before its turn", "error", err) // nothing of it counts
	} else {
		log.Warn("a request failed", "error", err)
		if p.function != nil && !isReported(err) {
			in.config.ControlPlane.Event(&nodeapi.Event{
				Function: name, Reason: pr.Title, Message: pr.Detail, Field: pr.Field,
			})
		}
	}
	if told, is := w.(confidant); is {
		told.Failed(err)
	}
	if proxy.IsBroken(err) {
		// The server would wait for more of a body that pauses, before it lets go.
		p.body.Interrupt()
		panic(http.ErrAbortHandler) // the only way to tell the gateway that the answer is not whole
	}
	if p.id != "" {
		w.Header().Set(filterapi.HeaderRequest, p.id)
	}
	if p.body.CloseUnread() && !errors.Is(err, proxy.ErrClientGone) {
		p.body.Linger()
	}
	if isUndelivered(err) {
		w.Header().Set(filterapi.HeaderUndelivered, pr.Title)
	}
	problem.Write(w, pr, name, p.id)
}
