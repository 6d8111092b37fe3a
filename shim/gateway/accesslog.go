package gateway

import (
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	grpclog "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	otlplog "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/accesslog"
)

const (
	// logInterval is how often a request is reported that goes on, as the relay counts.
	logInterval = time.Second
	// logFlush is how long a report may wait for others.
	logFlush = 200 * time.Millisecond
	// logBatches is how many messages of reports may be under way: 6 MiB. Others are lost.
	logBatches = 128
)

// requestRouter sends requests on, and reports them to the relay, so that functions in use are not
// scaled to zero, and as the load of their instances: when a request has its connection, each second
// while it lasts, and at its end. A mesh's gateways do the same (manifests/istio/gateways.yaml).
func requestRouter(p *packer) *router.Router {
	return &router.Router{
		SuppressEnvoyHeaders: true,
		UpstreamLogOptions: &router.Router_UpstreamAccessLogOptions{
			FlushUpstreamLogOnUpstreamStream: true,
			UpstreamLogFlushInterval:         durationpb.New(logInterval),
		},
		UpstreamLog: []*accesslogv3.AccessLog{{
			Name: "headstart",
			Filter: &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_LogTypeFilter{
				LogTypeFilter: &accesslogv3.LogTypeFilter{Types: []logdata.AccessLogType{
					logdata.AccessLogType_UpstreamPoolReady, logdata.AccessLogType_UpstreamPeriodic,
					logdata.AccessLogType_UpstreamEnd,
				}},
			}},
			ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: p.pack(&otlplog.OpenTelemetryAccessLogConfig{
				//nolint:staticcheck // SA1019: the oldest Envoy knows no other way to say it
				CommonConfig: &grpclog.CommonGrpcAccessLogConfig{
					LogName:             "headstart",
					TransportApiVersion: core.ApiVersion_V3,
					GrpcService:         grpcService(logCluster),
					BufferFlushInterval: durationpb.New(logFlush),
					BufferSizeBytes:     wrapperspb.UInt32(accesslog.Batch),
				},
				DisableBuiltinLabels: true,
				// The second is what the route filter has picked, which is not always where a request went.
				Body: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{
					StringValue: accesslog.Format("%REQ("+filterapi.HeaderFunction+")%", "%REQ("+filterapi.HeaderEndpoint+")%")}},
			})},
		}},
	}
}

// logs is the relay, with a limit on what waits for it: Envoy would keep all reports for a daemon that hangs.
func (c Config) logs(p *packer) *clusterv3.Cluster {
	logs := pipeCluster(logCluster, c.RelaySocket, http2(p))
	logs.CircuitBreakers = &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxRequests: wrapperspb.UInt32(logBatches),
	}}}
	return logs
}
