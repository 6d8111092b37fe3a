package trigger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/trigger")

// delivery makes requests of entries.
type delivery struct {
	gateway http.Handler
	node    string
	trigger *nodeapi.Trigger
	// templates are of the function's inputs; empty: entries name none.
	templates reference.Templates
}

func newDelivery(gateway http.Handler, node string, t *nodeapi.Trigger) (*delivery, error) {
	templates, err := reference.ParseTemplates(reference.NewInputs(t.GetInput(), t.GetInputs()))
	if err != nil {
		return nil, fmt.Errorf("inputs of function %s: %w", t.GetFunction(), err)
	}
	return &delivery{gateway: gateway, node: node, trigger: t, templates: templates}, nil
}

// deliver sends one entry to the function and waits for the whole answer.
func (d *delivery) deliver(ctx context.Context, f *nodeapi.Function, e Entry) outcome {
	ev := newEvent(d.trigger.GetStream(), e)
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(ev.attributes))
	id := nodeapi.NewRequestID()
	name := d.trigger.GetFunction()
	ctx, span := tracer.Start(ctx, tracing.Trigger, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		tracing.Function.String(name), tracing.FaaSName.String(name), tracing.FaaSTrigger.String(tracing.TriggerPubSub),
		tracing.Request.String(id), tracing.FaaSInvocationID.String(id), tracing.Node.String(d.node),
		tracing.TriggerEntry.String(e.ID), tracing.TriggerTry.Int(e.Tries)))
	defer span.End()
	o := tooLarge
	if !e.TooLarge {
		o = d.send(ctx, f, id, ev)
	}
	if o.failure != nil {
		span.SetStatus(codes.Error, o.failure.Title)
	} else if o.status/100 != 2 {
		span.SetStatus(codes.Error, reasonFunctionRefused)
	}
	return o
}

// tooLarge is what comes of an entry of which a node takes nothing.
var tooLarge = outcome{status: http.StatusRequestEntityTooLarge, hopeless: true, failure: problem.New(http.StatusRequestEntityTooLarge, "EntryTooLarge", field,
	fmt.Sprintf("the entry is more than %d MiB; put its data into a store, and the name into the entry", TakeMost>>20))}

func (d *delivery) send(ctx context.Context, f *nodeapi.Function, id string, ev event) outcome {
	r, err := d.request(ctx, f, id, ev)
	if _, is := errors.AsType[*reference.Error](err); is {
		p := problem.New(
			http.StatusBadRequest, filterapi.ReasonInputReferenceMalformed, filterapi.AnnotationInput,
			"the entry names no input: "+err.Error(),
		)
		return outcome{status: p.Status, failure: p, hopeless: true}
	} else if err != nil {
		p := problem.Of(err)
		return outcome{status: p.Status, failure: p}
	}
	return outcomeOf(call.Do(d.gateway, r, call.Keep{Most: problemMost, Whole: true}))
}

// request is the entry's, as the gateway would pass it on.
func (d *delivery) request(ctx context.Context, f *nodeapi.Function, id string, ev event) (*http.Request, error) {
	references, err := ev.inputs(d.templates)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://headstart.invalid/", bytes.NewReader(ev.body))
	if err != nil {
		return nil, fmt.Errorf("making the request of an entry: %w", err)
	}
	r.Header = ev.header()
	tracing.Inject(ctx, r.Header)
	r.Header.Set(filterapi.HeaderRequest, id)
	r.Header.Set(filterapi.HeaderFunction, d.trigger.GetFunction())
	if ref := references[""]; ref != "" {
		r.Header.Set(filterapi.HeaderInput, ref)
	}
	if named := references.String(); named != "" {
		r.Header.Set(filterapi.HeaderInputs, named)
	}
	r.Host = call.Host(f)
	if f.GetHttp2() { // the function gets it as it came
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	}
	return r, nil
}
