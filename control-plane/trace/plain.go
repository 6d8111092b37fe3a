package trace

import (
	"context"
	"encoding/base64"
	"net/netip"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// plain is a collector that changes what it passes on.
type plain struct {
	collectorpb.UnimplementedTraceServiceServer
	next collectorpb.TraceServiceServer
}

// Plain returns a collector for next that has all gateways name the endpoint that was picked in
// the same words. Those of a mesh can only repeat a header, and that is in base64.
func Plain(next collectorpb.TraceServiceServer) collectorpb.TraceServiceServer {
	return &plain{next: next}
}

func (p *plain) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				nameEndpoint(span.GetAttributes())
			}
		}
	}
	return p.next.Export(ctx, req)
}

// nameEndpoint leaves alone what names none.
func nameEndpoint(attributes []*commonpb.KeyValue) {
	for _, kv := range attributes {
		if kv.GetKey() != string(tracing.Session) {
			continue
		}
		named, err := base64.StdEncoding.DecodeString(kv.GetValue().GetStringValue())
		if err != nil {
			return
		}
		if _, err := netip.ParseAddrPort(string(named)); err != nil {
			return
		}
		kv.Key = string(tracing.Endpoint)
		kv.Value = &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: string(named)}}
		return
	}
}
