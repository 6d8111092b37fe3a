package ingress_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// spansOf returns the ended spans of the trace of a request, by their beginning.
func spansOf(id string) []sdktrace.ReadOnlySpan {
	var of []sdktrace.ReadOnlySpan
	for _, s := range spans.Ended() {
		if s.SpanContext().TraceID().String() == id {
			of = append(of, s)
		}
	}
	slices.SortFunc(of, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	return of
}

// named returns the one span of that name, or of activations the nth.
func named(t *testing.T, id, name string, nth int) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, s := range spansOf(id) {
		if s.Name() == name {
			if nth == 0 {
				return s
			}
			nth--
		}
	}
	t.Fatalf("the trace has no %s", name)
	return nil
}

func attributes(s sdktrace.ReadOnlySpan) map[attribute.Key]string {
	m := map[attribute.Key]string{}
	for _, kv := range s.Attributes() {
		m[kv.Key] = kv.Value.String()
	}
	return m
}

// waitTrace waits for the end of the trace's n activations: it comes after the answer's.
func waitTrace(t *testing.T, id string, n int) {
	t.Helper()
	eventually(t, "the trace has ended", func() bool {
		count := 0
		for _, s := range spansOf(id) {
			if s.Name() == tracing.Activation {
				count++
			}
		}
		return count == n
	})
}

const clientSpan = "00f067aa0ba902b7" // as request sets it

// A cold request with a hint is one trace, in which each phase has its span.
func TestTraceOfAColdRequest(t *testing.T) {
	var r *rig
	var got seen
	r = newRig(t, see(t, &r, &got))
	id := newID()
	ref := r.put("private/of-a-person", "", []byte("input"))
	call(r.Hints(), hint(withInput, id, ref))
	<-r.outcomes
	r.do(t, request(t, "POST", withInput, id, ref, nil))
	waitTrace(t, id, 1)

	activation := named(t, id, tracing.Activation, 0)
	var tree []string
	for _, s := range spansOf(id) {
		parent := "?"
		switch s.Parent().SpanID().String() {
		case activation.SpanContext().SpanID().String():
			parent = tracing.Activation
		case clientSpan:
			parent = "client"
		}
		tree = append(tree, s.Name()+" of "+parent+" as "+s.SpanKind().String()+": "+s.Status().Code.String())
	}
	want := []string{"fetch of activation as client: Unset", "activation of client as server: Unset", "transfer of activation as internal: Unset",
		"deliver of activation as client: Unset", "execute of activation as internal: Unset"}
	if d := cmp.Diff(want, tree); d != "" {
		t.Error(d)
	}
	for name, want := range map[string]map[attribute.Key]string{
		tracing.Activation: {tracing.Function: withInput, tracing.FaaSName: withInput, tracing.Request: id, tracing.FaaSInvocationID: id,
			tracing.FaaSTrigger: "http", tracing.FaaSColdStart: "true", tracing.Node: "edge-1", tracing.Instance: target},
		tracing.Fetch:    {tracing.InputScheme: "s3", tracing.InputBytes: "5", tracing.InputWay: "store"},
		tracing.Transfer: {tracing.TransferKind: "local"},
		tracing.Deliver:  {}, tracing.Execute: {},
	} {
		if d := cmp.Diff(want, attributes(named(t, id, name, 0))); d != "" {
			t.Error(name, d)
		}
	}
	deliver, execute := named(t, id, tracing.Deliver, 0), named(t, id, tracing.Execute, 0)
	if deliver.EndTime() != execute.StartTime() {
		t.Errorf("deliver ends %v before execute begins", execute.StartTime().Sub(deliver.EndTime()))
	}
	if want := "00-" + id + "-" + deliver.SpanContext().SpanID().String() + "-01"; got.header.Get("traceparent") != want {
		t.Errorf("the function continues %s, want %s", got.header.Get("traceparent"), want)
	}
	if asked := r.cp.asked[0]; asked.GetTraceparent() != "00-"+id+"-"+activation.SpanContext().SpanID().String()+"-01" || asked.GetInput() != ref {
		t.Errorf("the control plane is asked %v", asked)
	}
	if s := fmt.Sprint(spansOf(id)); strings.Contains(s, "of-a-person") {
		t.Errorf("a span tells the object's key: %s", s)
	}
}

// Without a traceparent of the client's the trace begins here.
func TestTraceWithoutParent(t *testing.T) {
	var r *rig
	var got seen
	r = newRig(t, see(t, &r, &got))
	req := request(t, "POST", withoutInput, newID(), "", nil)
	req.Header.Set("traceparent", "nonsense")
	req.Header.Set("tracestate", "of=another")
	r.do(t, req)
	if got, there := got.header["Tracestate"]; there {
		t.Errorf("the function got a tracestate of no trace: %q", got)
	}
	parts := strings.Split(got.header.Get("traceparent"), "-")
	if len(parts) != 4 {
		t.Fatalf("the function continues %q", got.header.Get("traceparent"))
	}
	waitTrace(t, parts[1], 1)
	if a := named(t, parts[1], tracing.Activation, 0); a.Parent().IsValid() {
		t.Errorf("its parent is %v", a.Parent())
	}
}

// When a request goes on without a reference although its function has an input, the
// trace says so.
func TestDegradedIsTold(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) {})
	ref := r.put("some", "", []byte("input"))
	for _, c := range []struct{ function, id, ref, want string }{
		{withInput, "", "", "NoInputReference"},
		{withInput, "", ref, ""},
		{withInput, newID(), "", ""},
		{withoutInput, "", "", ""},
	} {
		req := request(t, "POST", c.function, c.id, c.ref, nil)
		trace := newID()
		req.Header.Set("traceparent", "00-"+trace+"-"+clientSpan+"-01")
		r.do(t, req)
		waitTrace(t, trace, 1)
		if got := attributes(named(t, trace, tracing.Activation, 0))[tracing.Degraded]; got != c.want {
			t.Errorf("%+v is degraded by %q", c, got)
		}
	}
}

func TestTraceOfAHandOver(t *testing.T) {
	p := newPair(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) })
	p.gateway.store.Before = stall
	ref, id := p.gateway.put("some", "", []byte("input")), newID()
	p.target.put("some", "", []byte("input"))
	read(t, p.gateway.do(t, request(t, "POST", withInput, id, ref, nil)).Body)
	waitTrace(t, id, 2)
	first, second := named(t, id, tracing.Activation, 0), named(t, id, tracing.Activation, 1)
	handOver := named(t, id, tracing.Transfer, 0)
	if handOver.Parent().SpanID() != first.SpanContext().SpanID() || second.Parent().SpanID() != handOver.SpanContext().SpanID() {
		t.Error("the activations are not joined by the transfer")
	}
	if attributes(handOver)[tracing.TransferKind] != "peer" || attributes(named(t, id, tracing.Transfer, 1))[tracing.TransferKind] != "local" {
		t.Error("the transfers are of other kinds")
	}
	if handOver.EndTime().After(second.EndTime()) {
		t.Error("the transfer lasts as long as the answer")
	}
	for _, s := range []sdktrace.ReadOnlySpan{first, second} {
		if attributes(s)[tracing.Instance] != target {
			t.Errorf("an activation has %v", attributes(s))
		}
	}
	if a := attributes(second); a[tracing.FaaSColdStart] != "" {
		t.Error("the target cannot know whether it was a cold start")
	}
}

// What fails shows on the spans it concerns, by its title alone.
func TestTraceOfAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		function http.HandlerFunc
		prepare  func(*rig)
		key      string
		want     map[string]string // by span: its error
	}{
		"input": {prepare: func(r *rig) { r.instances.ready = neverReady }, key: "missing",
			want: map[string]string{"activation": "InputNotFound", "fetch": "InputNotFound"}},
		"function": {function: func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(io.Discard, req.Body); abort(w, req) }, key: "some",
			want: map[string]string{"activation": "FunctionFailed", "fetch": "", "transfer": "", "execute": "FunctionFailed", "deliver": ""}},
		"delivery": {prepare: func(r *rig) { r.instances.ready = readyNowhere }, key: "some",
			want: map[string]string{"activation": "FunctionFailed", "fetch": "", "transfer": "", "deliver": "FunctionFailed"}},
		"instance": {prepare: func(r *rig) {
			r.instances.ready = failReady
			r.store.Before = stall
		}, key: "some", want: map[string]string{"activation": "ReadyTimeout", "fetch": ""}},
		"placement": {prepare: func(r *rig) { r.cp.activate = refuse }, key: "some", want: map[string]string{"activation": "NoNode", "fetch": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.function)
			r.put("some", "", []byte("input"))
			if c.prepare != nil {
				c.prepare(r)
			}
			id := newID()
			r.do(t, request(t, "POST", withInput, id, "s3://inputs/"+c.key, nil))
			waitTrace(t, id, 1)
			got := map[string]string{}
			for _, s := range spansOf(id) {
				if got[s.Name()] = s.Status().Description; (s.Status().Code == codes.Error) != (s.Status().Description != "") {
					t.Errorf("%s has status %v", s.Name(), s.Status())
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}
