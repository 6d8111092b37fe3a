package gateway

import (
	"time"

	accesslog "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logdata "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	grpclog "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/grpc/v3"
	router "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// logInterval is how often a request is reported that goes on, as the relay counts.
	logInterval = time.Second
	// logFlush is how long a report may wait for others.
	logFlush = 200 * time.Millisecond
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
		UpstreamLog: []*accesslog.AccessLog{{
			Name: "headstart",
			Filter: &accesslog.AccessLogFilter{FilterSpecifier: &accesslog.AccessLogFilter_LogTypeFilter{
				LogTypeFilter: &accesslog.LogTypeFilter{Types: []logdata.AccessLogType{
					logdata.AccessLogType_UpstreamPoolReady, logdata.AccessLogType_UpstreamPeriodic,
					logdata.AccessLogType_UpstreamEnd,
				}},
			}},
			ConfigType: &accesslog.AccessLog_TypedConfig{TypedConfig: p.pack(&grpclog.HttpGrpcAccessLogConfig{
				CommonConfig: &grpclog.CommonGrpcAccessLogConfig{
					LogName:             "headstart",
					TransportApiVersion: core.ApiVersion_V3,
					GrpcService:         grpcService(relayCluster),
					BufferFlushInterval: durationpb.New(logFlush),
				},
				// The second is what the route filter has picked, which is not always where a request went.
				AdditionalRequestHeadersToLog: []string{filterapi.HeaderFunction, filterapi.HeaderEndpoint},
			})},
		}},
	}
}
