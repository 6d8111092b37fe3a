package trace

import (
	"context"
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"

	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// plain is a collector that changes what it passes on.
type plain struct {
	collectorpb.UnimplementedTraceServiceServer
	next collectorpb.TraceServiceServer
}

// urls are the attributes that may have a query, where some put tokens: OpenTelemetry's, of now and
// before, and Envoy's.
var urls = []string{"http.url", "http.target", "url.full", "http.request.header.referer", "http.referer"}

// urlQuery is a query alone.
const urlQuery = "url.query"

// Plain returns a collector for next that has all gateways say the same in the same words. Those of a
// mesh can only repeat a header of the endpoint that was picked, and that is in base64. Their spans have
// URLs with the query, which Istio cannot leave out, and no span here has.
func Plain(next collectorpb.TraceServiceServer) collectorpb.TraceServiceServer {
	return &plain{next: next}
}

func (p *plain) Export(ctx context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				nameEndpoint(span.GetAttributes())
				span.Name, _, _ = strings.Cut(span.GetName(), "?")
				withoutQueries(span.GetAttributes())
				for _, event := range span.GetEvents() {
					withoutQueries(event.GetAttributes())
				}
			}
		}
	}
	return p.next.Export(ctx, req)
}

func withoutQueries(attributes []*commonpb.KeyValue) {
	for _, kv := range attributes {
		text, is := kv.GetValue().GetValue().(*commonpb.AnyValue_StringValue)
		switch {
		case kv.GetKey() == urlQuery:
			kv.Value = nil
		case slices.Contains(urls, kv.GetKey()) && is:
			text.StringValue, _, _ = strings.Cut(text.StringValue, "?")
		case slices.Contains(urls, kv.GetKey()): // a list, as of headers
			kv.Value = nil
		}
	}
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
