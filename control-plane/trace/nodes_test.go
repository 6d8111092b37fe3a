package trace_test

import (
	"net"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls/peertlstest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
)

// collectorFor serves a store at a port for nodes and gateways. as returns how a party of the authority
// calls it; nobody's name is without a certificate.
func collectorFor(t *testing.T) (store *trace.Store, as func(name string) collectorpb.TraceServiceClient) {
	t.Helper()
	authority := peertlstest.New(t)
	server, _ := authority.Load(t, "headstart-controlplane")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	store = trace.NewStore()
	s := serve.NewGRPC(grpc.Creds(trace.Credentials(credentials.NewTLS(server))))
	collectorpb.RegisterTraceServiceServer(s, trace.Nodes(store))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return store, func(name string) collectorpb.TraceServiceClient {
		with := insecure.NewCredentials()
		if name != "" {
			_, client := authority.Load(t, name)
			with = credentials.NewTLS(peertls.ClientFor(client, "headstart-controlplane"))
		}
		conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(with))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return collectorpb.NewTraceServiceClient(conn)
	}
}

// claim is a span of a trace, by its number.
func claim(t uint64, service string, attributes ...*commonpb.KeyValue) *tracepb.ResourceSpans {
	name := []*commonpb.KeyValue{attribute("service.name", text(service))}
	return &tracepb.ResourceSpans{Resource: &resourcepb.Resource{Attributes: name},
		ScopeSpans: []*tracepb.ScopeSpans{{Spans: []*tracepb.Span{otlp(t, t, service, attributes...)}}}}
}

// send has a caller send spans, and returns how many are refused.
func send(t *testing.T, c collectorpb.TraceServiceClient, spans ...*tracepb.ResourceSpans) int64 {
	t.Helper()
	request := &collectorpb.ExportTraceServiceRequest{ResourceSpans: spans}
	answer, err := c.Export(t.Context(), request, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetPartialSuccess().GetRejectedSpans()
}

// services are those of the spans that are kept, in order.
func services(s *trace.Store) (all []string) {
	for i := range uint64(8) {
		if kept, is := s.Get(number(i)); is {
			for _, span := range kept.Spans {
				all = append(all, span.Service)
			}
		}
	}
	slices.Sort(all)
	return all
}

// A node's spans are of its daemon and its shims, and of no other node: others' and the control plane's
// it cannot make.
func TestAttackNodeSendsSpansOfOthers(t *testing.T) {
	store, as := collectorFor(t)
	edge := as("edge-1")
	of := func(node string) *commonpb.KeyValue { return attribute("headstart.node", text(node)) }
	n := send(t, edge, claim(1, "headstart-node", of("edge-1")), claim(2, "containerd-shim-headstart"))
	if n != 0 {
		t.Errorf("%d of its own are refused", n)
	}
	n = send(t, edge, claim(3, "headstart-node", of("edge-2")), claim(4, "headstart-controlplane"),
		claim(5, "headstart-gateway"), claim(6, ""))
	if n != 4 {
		t.Errorf("%d of 4 of others are refused", n)
	}
	if kept := services(store); !slices.Equal(kept, []string{"containerd-shim-headstart", "headstart-node"}) {
		t.Errorf("kept are %v", kept)
	}
}

// Gateways, and daemons of a version before, come to the same port without a certificate.
func TestGatewaysNeedNoCertificate(t *testing.T) {
	store, as := collectorFor(t)
	send(t, as(""), claim(1, "headstart-gateway"))
	send(t, as("edge-1"), claim(2, "headstart-node"))
	if kept := services(store); !slices.Equal(kept, []string{"headstart-gateway", "headstart-node"}) {
		t.Errorf("kept are %v", kept)
	}
}

// Who reaches the port without a certificate pushes out the traces of others who have none, and of those in which a
// node has a span no more than half.
func TestAttackSpansWithoutACertificate(t *testing.T) {
	store, as := collectorFor(t)
	edge, stranger := as("edge-1"), as("")
	const own = trace.TracesLimit / 2
	several := func(from, n uint64, service string) (spans []*tracepb.ResourceSpans) {
		for i := range n {
			spans = append(spans, claim(from+i, service))
		}
		return spans
	}
	send(t, stranger, several(1, own/2, "headstart-gateway")...) // of these requests, gateways tell first
	send(t, edge, several(1, own, "headstart-node")...)
	send(t, stranger, several(own+1, 3*trace.TracesLimit, "headstart-node")...)
	for i := range uint64(own) {
		if _, kept := store.Get(number(i + 1)); !kept {
			t.Fatalf("trace %d is gone", i+1)
		}
	}
	if traces, _, _ := store.Held(); traces != trace.TracesLimit {
		t.Errorf("%d traces", traces)
	}
	send(t, edge, several(10_000, 2*trace.TracesLimit, "headstart-node")...)
	if _, kept := store.Get(number(own + 3*trace.TracesLimit)); !kept {
		t.Error("nodes' traces leave others none")
	}
}
