//go:build integration

package gateway

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// spans receives what gateways export.
type spans struct {
	collector.UnimplementedTraceServiceServer
	received chan *trace.ResourceSpans
}

func (s *spans) Export(ctx context.Context, r *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error,
) {
	for _, rs := range r.GetResourceSpans() {
		select {
		case s.received <- rs:
		case <-ctx.Done():
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// An incoming traceparent continues; a request without one starts a trace.
func TestSpans(t *testing.T) {
	const traceID, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	socket := filepath.Join(t.TempDir(), "otlp")
	s := &spans{received: make(chan *trace.ResourceSpans, 10)}
	g := grpc.NewServer()
	collector.RegisterTraceServiceServer(g, s)
	serveGRPC(t, g, "unix", socket)
	b := start(t, coldState(), func(c *gateway.Config) {
		c.OTLPSocket, c.TraceSampling, c.Filters = socket, 100, programtest.Path(t, "filters.wasm")
	})
	daemon := b.listen("unix", b.gw.IngressSocket, "cold")

	b.get(video().Hosts[0], "x-key", "cam1.mjpeg", "traceparent", "00-"+traceID+"-"+parent+"-01")
	_, r := daemon.requests()
	span := s.next(t)
	if got := hex.EncodeToString(span.GetTraceId()); got != traceID {
		t.Errorf("trace %s, want the client's", got)
	}
	if got := hex.EncodeToString(span.GetParentSpanId()); got != parent {
		t.Errorf("parent %s, want the client's", got)
	}
	if got, want := r.Header.Get("traceparent"), "00-"+traceID+"-"+hex.EncodeToString(span.GetSpanId())+"-01"; got != want {
		t.Errorf("the daemon got traceparent %s, want %s", got, want)
	}
	attributes := map[string]string{}
	for _, a := range span.GetAttributes() {
		attributes[a.GetKey()] = a.GetValue().GetStringValue()
	}
	own := func(k, _ string) bool { return len(k) < 10 || k[:10] != "headstart." }
	if diff := cmp.Diff(map[string]string{
		string(tracing.Function): video().Name,
		string(tracing.Request):  r.Header.Get(filterapi.HeaderRequest),
		string(tracing.Node):     b.gw.Node,
	}, attributes, cmpopts.IgnoreMapEntries(own)); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}

	if got := attributes["http.url"]; got != "http://"+video().Hosts[0]+"/" {
		t.Errorf("http.url is %s", got)
	}

	// Of a function with several instances it is told which one was picked, and which one had it.
	st := coldState()
	row := routing.Row{Weights: []uint32{1, 1}, Expected: []filterapi.Expected{faraway, nearby}}
	places := &routing.Matrix{Rows: map[string]routing.Row{b.gw.Node: row}}
	for i := range row.Weights {
		place := b.listen("tcp", "127.0.0.1:0", "hot")
		places.Endpoints = append(places.Endpoints, netip.MustParseAddrPort(place.address))
		st.Instances = append(st.Instances, ready(thumbs(), fmt.Sprint(i), place.address))
	}
	b.weights = routing.Weights{thumbs().Name: places}
	b.update(st)
	b.settle()
	told := map[string]string{}
	b.eventually("the filter picks", func() bool {
		b.get(thumbs().Hosts[0])
		for _, a := range s.next(t).GetAttributes() {
			told[a.GetKey()] = a.GetValue().GetStringValue()
		}
		return told[string(tracing.Endpoint)] != ""
	})
	for _, k := range []attribute.Key{tracing.Endpoint, tracing.UpstreamAddress} {
		if got, want := told[string(k)], places.Endpoints[1].String(); got != want {
			t.Errorf("the span's %s is %q, want %q", k, got, want)
		}
	}

	b.get("nobody.example.com")
	if span := s.next(t); len(span.GetParentSpanId()) != 0 || hex.EncodeToString(span.GetTraceId()) == traceID {
		t.Errorf("a request without a traceparent got %v", span)
	}
}

func (s *spans) next(t *testing.T) *trace.Span {
	t.Helper()
	select {
	case rs := <-s.received:
		for _, a := range rs.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" && a.GetValue().GetStringValue() != tracing.ServiceGateway {
				t.Errorf("service %v", a.GetValue())
			}
		}
		span := rs.GetScopeSpans()[0].GetSpans()[0]
		if span.GetName() != tracing.Gateway || span.GetKind() != trace.Span_SPAN_KIND_SERVER {
			t.Errorf("span %q of kind %v", span.GetName(), span.GetKind())
		}
		return span
	case <-time.After(patience):
		t.Fatal("no span")
		return nil
	}
}
