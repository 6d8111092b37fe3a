package gateway

import (
	"time"

	mutation "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	trace "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	earlymutation "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	tracingv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/module"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// Limits of the edge, after Envoy's "Configuring Envoy as an edge proxy".
const (
	// connectionBuffer bounds what Envoy holds of one connection's body in each
	// direction, so that its memory does not grow with an input's size.
	connectionBuffer = 256 << 10
	// http2StreamWindow and http2ConnectionWindow bound what an HTTP/2 client may send
	// ahead of the upstream, and http2Streams how often it may do so.
	http2StreamWindow     = 256 << 10
	http2ConnectionWindow = 1 << 20
	http2Streams          = 1000
	// maxRequestHeadersKB is in KiB: room for MaxPlaceholders keys of S3's length.
	maxRequestHeadersKB = 32
	// requestHeadersTimeout frees the gateway of clients that trickle headers.
	requestHeadersTimeout = 10 * time.Second
	// clientIdleTimeout closes a client's connection that has no request.
	clientIdleTimeout = 5 * time.Minute
)

// strippedPrefixes begin header names that only the gateway may set: Headstart's own,
// and Envoy's, with which a client could set its own retries and timeouts.
var strippedPrefixes = []string{filterapi.HeaderPrefix, "x-envoy-"}

func (c Config) listener(p *packer) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: listenerName,
		Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: &core.SocketAddress{
			Address: "0.0.0.0", PortSpecifier: &core.SocketAddress_PortValue{PortValue: c.Port},
		}}},
		PerConnectionBufferLimitBytes: wrapperspb.UInt32(connectionBuffer),
		FilterChains: []*listenerv3.FilterChain{{
			Filters: []*listenerv3.Filter{{
				Name:       "envoy.filters.network.http_connection_manager",
				ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: p.pack(c.connectionManager(p))},
			}},
		}},
	}
}

func (c Config) connectionManager(p *packer) *hcm.HttpConnectionManager {
	m := &hcm.HttpConnectionManager{
		StatPrefix: listenerName,
		RouteSpecifier: &hcm.HttpConnectionManager_Rds{
			Rds: &hcm.Rds{RouteConfigName: routesName, ConfigSource: adsSource()},
		},
		// A name with all of its labels may end with a dot (RFC 1034, section 3.1), and is the same host.
		StripTrailingHostDot:          true,
		UseRemoteAddress:              wrapperspb.Bool(true),
		GenerateRequestId:             wrapperspb.Bool(true),
		EarlyHeaderMutationExtensions: []*core.TypedExtensionConfig{stripHeaders(p)},
		// Slashes stay as they are: they may be part of what a function calls a key.
		NormalizePath:         wrapperspb.Bool(true),
		MaxRequestHeadersKb:   wrapperspb.UInt32(maxRequestHeadersKB),
		RequestHeadersTimeout: durationpb.New(requestHeadersTimeout),
		CommonHttpProtocolOptions: &core.HttpProtocolOptions{
			IdleTimeout: durationpb.New(clientIdleTimeout),
			// CGI and WSGI programs take x_headstart_input for x-headstart-input.
			HeadersWithUnderscoresAction: core.HttpProtocolOptions_DROP_HEADER,
		},
		// Old programs and load testers speak it; it names its function by Host all the same.
		HttpProtocolOptions: &core.Http1ProtocolOptions{AcceptHttp_10: true},
		Http2ProtocolOptions: &core.Http2ProtocolOptions{
			MaxConcurrentStreams:        wrapperspb.UInt32(http2Streams),
			InitialStreamWindowSize:     wrapperspb.UInt32(http2StreamWindow),
			InitialConnectionWindowSize: wrapperspb.UInt32(http2ConnectionWindow),
		},
		LocalReplyConfig: localReplies(p),
	}
	if c.OTLPSocket != "" {
		m.Tracing = c.tracer(p)
	}
	if c.Filters != "" {
		m.HttpFilters = append(m.HttpFilters, discovered(module.Name, p))
	}
	m.HttpFilters = append(m.HttpFilters, &hcm.HttpFilter{
		Name:       "envoy.filters.http.router",
		ConfigType: &hcm.HttpFilter_TypedConfig{TypedConfig: p.pack(requestRouter(p))},
	})
	return m
}

func stripHeaders(p *packer) *core.TypedExtensionConfig {
	var m earlymutation.HeaderMutation
	for _, prefix := range strippedPrefixes {
		m.Mutations = append(m.Mutations, &mutation.HeaderMutation{Action: &mutation.HeaderMutation_RemoveOnMatch_{
			RemoveOnMatch: &mutation.HeaderMutation_RemoveOnMatch{
				KeyMatcher: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Prefix{Prefix: prefix}},
			},
		}})
	}
	return &core.TypedExtensionConfig{Name: "envoy.http.early_header_mutation.header_mutation", TypedConfig: p.pack(&m)}
}

// tracer opens one span per request. Its name and attributes are listed in
// docs/reference/traces.md.
func (c Config) tracer(p *packer) *hcm.HttpConnectionManager_Tracing {
	tag := func(k attribute.Key, format string) *tracingv3.CustomTag {
		return &tracingv3.CustomTag{Tag: string(k), Type: &tracingv3.CustomTag_Value{Value: format}}
	}
	return &hcm.HttpConnectionManager_Tracing{
		Operation:      tracing.Gateway,
		RandomSampling: &typev3.Percent{Value: c.TraceSampling},
		CustomTags: []*tracingv3.CustomTag{
			tag(tracing.Function, "%ROUTE_NAME%"),
			tag(tracing.Request, "%REQ("+filterapi.HeaderRequest+")%"),
			tag(tracing.Endpoint, "%REQ("+filterapi.HeaderEndpoint+")%"),
			// Envoy has it on spans of its own only, one for each try.
			tag(tracing.UpstreamAddress, "%UPSTREAM_HOST%"),
			// Envoy's own has the query, where some put tokens.
			tag("http.url", "%REQ(:SCHEME)%://%REQ(:AUTHORITY)%%PATH(NQ:PATH)%"),
			{Tag: string(tracing.Node),
				Type: &tracingv3.CustomTag_Literal_{Literal: &tracingv3.CustomTag_Literal{Value: c.Node}}},
		},
		Provider: &trace.Tracing_Http{
			Name: "envoy.tracers.opentelemetry",
			ConfigType: &trace.Tracing_Http_TypedConfig{TypedConfig: p.pack(&trace.OpenTelemetryConfig{
				GrpcService: grpcService(otlpCluster),
				ServiceName: tracing.ServiceGateway,
			})},
		},
	}
}
