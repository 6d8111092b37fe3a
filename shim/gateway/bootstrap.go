package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	overload "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	downstream "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	// reconnectBase and reconnectMax: Envoy's own 30 s would leave a gateway alone long
	// after the daemon is back.
	reconnectBase = 100 * time.Millisecond
	reconnectMax  = 2 * time.Second
	// maxClients is the number of client connections of one gateway, below the usual
	// limit of open files in a container (1048576) by far and above any node's need.
	maxClients = 20_000
	// Spans leave the gateway after spanFlush, or when spanBatch have come together. One
	// by one they double the median of a hot request under load.
	spanFlush = 200 * time.Millisecond
	spanBatch = 32
	adminMode = 0o600
	// What Envoy has freed goes back to the system each releaseInterval, up to releaseMost bytes: the
	// compiler of filters leaves some 20 MiB behind.
	releaseInterval = time.Second
	releaseMost     = 100 << 20
	// envoyCluster is Envoy's node.cluster, a name for all gateways together.
	envoyCluster = "headstart"
)

// Bootstrap returns an Envoy bootstrap as JSON, for a file that ends in .json: what a gateway must
// know before it meets the relay. While the daemon is away, Envoy goes on with what it has.
func (c Config) Bootstrap() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var p packer
	relay := grpcService(relayCluster)
	relay.GetEnvoyGrpc().RetryPolicy = &core.RetryPolicy{RetryBackOff: &core.BackoffStrategy{
		BaseInterval: durationpb.New(reconnectBase),
		MaxInterval:  durationpb.New(reconnectMax),
	}}
	admin := pipe(c.AdminSocket)
	admin.GetPipe().Mode = adminMode
	b := &bootstrap.Bootstrap{
		Node: &core.Node{Id: c.Node, Cluster: envoyCluster},
		// Who drains the gateway gets in while clients have all connections.
		Admin: &bootstrap.Admin{Address: admin, IgnoreGlobalConnLimit: true},
		DynamicResources: &bootstrap.Bootstrap_DynamicResources{
			AdsConfig: &core.ApiConfigSource{
				ApiType:                   core.ApiConfigSource_DELTA_GRPC,
				TransportApiVersion:       core.ApiVersion_V3,
				GrpcServices:              []*core.GrpcService{relay},
				SetNodeOnFirstMessageOnly: true,
			},
			LdsConfig: adsSource(),
			CdsConfig: adsSource(),
		},
		MemoryAllocatorManager: &bootstrap.MemoryAllocatorManager{
			BytesToRelease: releaseMost, MemoryReleaseInterval: durationpb.New(releaseInterval),
		},
		StaticResources: &bootstrap.Bootstrap_StaticResources{
			Clusters: []*clusterv3.Cluster{pipeCluster(relayCluster, c.RelaySocket, http2(&p))},
		},
		LayeredRuntime: &bootstrap.LayeredRuntime{Layers: []*bootstrap.RuntimeLayer{{
			Name: "headstart",
			LayerSpecifier: &bootstrap.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: map[string]*structpb.Value{
				"tracing.opentelemetry.flush_interval_ms": structpb.NewNumberValue(float64(spanFlush.Milliseconds())),
				"tracing.opentelemetry.min_flush_spans":   structpb.NewNumberValue(spanBatch),
			}}},
		}}},
		OverloadManager: &overload.OverloadManager{ResourceMonitors: []*overload.ResourceMonitor{{
			Name: "envoy.resource_monitors.global_downstream_max_connections",
			ConfigType: &overload.ResourceMonitor_TypedConfig{TypedConfig: p.pack(&downstream.DownstreamConnectionsConfig{
				MaxActiveDownstreamConnections: maxClients,
			})},
		}}},
	}
	if p.err != nil {
		return nil, fmt.Errorf("packing the bootstrap: %w", p.err)
	}
	if err := b.ValidateAll(); err != nil {
		return nil, fmt.Errorf("bootstrap: %w", err)
	}
	return indented(b)
}

// indented is the same for the same bootstrap, which protojson alone is not.
func indented(b *bootstrap.Bootstrap) ([]byte, error) {
	data, err := protojson.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encoding the bootstrap: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return nil, fmt.Errorf("indenting the bootstrap: %w", err)
	}
	return out.Bytes(), nil
}
