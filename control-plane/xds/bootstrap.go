package xds

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	overload "github.com/envoyproxy/go-control-plane/envoy/config/overload/v3"
	downstream "github.com/envoyproxy/go-control-plane/envoy/extensions/resource_monitors/downstream_connections/v3"
	tls "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcher "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headstart-mesh/headstart/control-plane/upstream"
)

const (
	controlPlaneCluster = "headstart-controlplane"
	relayCluster        = "headstart-relay"
	// reconnectBase and reconnectMax: Envoy's own 30 s would leave a gateway alone long
	// after the control plane is back.
	reconnectBase = 100 * time.Millisecond
	reconnectMax  = 2 * time.Second
	// A control plane that answers no ping for keepaliveTimeout counts as gone, so that a
	// broken path does not keep a gateway on old endpoints unnoticed.
	keepaliveInterval = 5 * time.Second
	keepaliveTimeout  = 5 * time.Second
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
)

// BootstrapConfig is what one gateway's Envoy must know before it meets the control
// plane.
type BootstrapConfig struct {
	// NodeID is the node's name, and the common name of the certificate in CertFile.
	NodeID string
	// Cluster is Envoy's node.cluster, a name for all gateways together.
	Cluster string
	// ControlPlaneAddress is host:port.
	ControlPlaneAddress string
	// ServerName is the DNS name in the control plane's certificate.
	ServerName string
	// CertFile, KeyFile and CAFile are PEM files on the node.
	CertFile, KeyFile, CAFile string
	// AdminSocket is where Envoy's admin interface listens, with mode 0600.
	AdminSocket string
	// RelaySocket is the unix socket of the node's daemon, which an Envoy that starts
	// without the control plane asks for the last that was heard. Empty: it waits.
	RelaySocket string
}

// Bootstrap returns an Envoy bootstrap as JSON, for a file that ends in .json. While
// the control plane is away, Envoy goes on with what it has, or if that is nothing, with
// what its node's daemon has.
func Bootstrap(cfg BootstrapConfig) ([]byte, error) {
	if err := checkSocket("admin", cfg.AdminSocket); err != nil {
		return nil, err
	}
	if cfg.NodeID == "" || cfg.ServerName == "" {
		return nil, errors.New("node id and server name must not be empty")
	}
	var p packer
	controlPlane, err := controlPlaneEndpoint(cfg, &p)
	if err != nil {
		return nil, err
	}
	runtime := map[string]*structpb.Value{
		"tracing.opentelemetry.flush_interval_ms": structpb.NewNumberValue(float64(spanFlush.Milliseconds())),
		"tracing.opentelemetry.min_flush_spans":   structpb.NewNumberValue(spanBatch),
	}
	ads, clusters := controlPlaneAPI(core.ApiConfigSource_DELTA_GRPC), []*clusterv3.Cluster{controlPlane}
	if cfg.RelaySocket != "" {
		if err := checkSocket("relay", cfg.RelaySocket); err != nil {
			return nil, err
		}
		ads.GrpcServices = append(ads.GrpcServices, reconnecting(relayCluster))
		clusters = append(clusters, pipeCluster(relayCluster, cfg.RelaySocket, http2(&p, &core.Http2ProtocolOptions{})))
		// Envoy takes a second service of ads_config for a source to go to at its start,
		// behind this guard.
		runtime["envoy.restart_features.xds_failover_support"] = structpb.NewBoolValue(true)
	}
	admin := pipe(cfg.AdminSocket)
	admin.GetPipe().Mode = adminMode
	b := &bootstrap.Bootstrap{
		Node:  &core.Node{Id: cfg.NodeID, Cluster: cfg.Cluster},
		Admin: &bootstrap.Admin{Address: admin},
		DynamicResources: &bootstrap.Bootstrap_DynamicResources{
			AdsConfig: ads,
			LdsConfig: adsSource(),
			CdsConfig: adsSource(),
		},
		MemoryAllocatorManager: &bootstrap.MemoryAllocatorManager{BytesToRelease: releaseMost, MemoryReleaseInterval: durationpb.New(releaseInterval)},
		ClusterManager:         &bootstrap.ClusterManager{LoadStatsConfig: controlPlaneAPI(core.ApiConfigSource_GRPC)},
		StaticResources:        &bootstrap.Bootstrap_StaticResources{Clusters: clusters},
		LayeredRuntime: &bootstrap.LayeredRuntime{Layers: []*bootstrap.RuntimeLayer{{
			Name:           "headstart",
			LayerSpecifier: &bootstrap.RuntimeLayer_StaticLayer{StaticLayer: &structpb.Struct{Fields: runtime}},
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

func controlPlaneAPI(kind core.ApiConfigSource_ApiType) *core.ApiConfigSource {
	return &core.ApiConfigSource{
		ApiType:                   kind,
		TransportApiVersion:       core.ApiVersion_V3,
		GrpcServices:              []*core.GrpcService{reconnecting(controlPlaneCluster)},
		SetNodeOnFirstMessageOnly: true,
	}
}

func reconnecting(cluster string) *core.GrpcService {
	service := grpcService(cluster)
	service.GetEnvoyGrpc().RetryPolicy = &core.RetryPolicy{RetryBackOff: &core.BackoffStrategy{
		BaseInterval: durationpb.New(reconnectBase),
		MaxInterval:  durationpb.New(reconnectMax),
	}}
	return service
}

func controlPlaneEndpoint(cfg BootstrapConfig, p *packer) (*clusterv3.Cluster, error) {
	host, portText, err := net.SplitHostPort(cfg.ControlPlaneAddress)
	if err != nil {
		return nil, fmt.Errorf("control plane address: %w", err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		return nil, fmt.Errorf("control plane address: port %q is not a number from 1 to 65535", portText)
	}
	discovery := clusterv3.Cluster_STRICT_DNS
	if _, err := netip.ParseAddr(host); err == nil {
		discovery = clusterv3.Cluster_STATIC
	}
	return &clusterv3.Cluster{
		Name:                 controlPlaneCluster,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: discovery},
		ConnectTimeout:       durationpb.New(upstream.ConnectTimeout),
		LoadAssignment:       assignment(controlPlaneCluster, lbEndpoint(socketAddress(host, uint32(port)), core.HealthStatus_UNKNOWN)),
		TypedExtensionProtocolOptions: http2(p, &core.Http2ProtocolOptions{ConnectionKeepalive: &core.KeepaliveSettings{
			Interval: durationpb.New(keepaliveInterval),
			Timeout:  durationpb.New(keepaliveTimeout),
		}}),
		TransportSocket: &core.TransportSocket{
			Name:       "envoy.transport_sockets.tls",
			ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: p.pack(mutualTLS(cfg))},
		},
	}, nil
}

func mutualTLS(cfg BootstrapConfig) *tls.UpstreamTlsContext {
	file := func(path string) *core.DataSource {
		return &core.DataSource{Specifier: &core.DataSource_Filename{Filename: path}}
	}
	return &tls.UpstreamTlsContext{
		Sni: cfg.ServerName,
		CommonTlsContext: &tls.CommonTlsContext{
			TlsParams:       &tls.TlsParameters{TlsMinimumProtocolVersion: tls.TlsParameters_TLSv1_3, TlsMaximumProtocolVersion: tls.TlsParameters_TLSv1_3},
			TlsCertificates: []*tls.TlsCertificate{{CertificateChain: file(cfg.CertFile), PrivateKey: file(cfg.KeyFile)}},
			ValidationContextType: &tls.CommonTlsContext_ValidationContext{ValidationContext: &tls.CertificateValidationContext{
				TrustedCa: file(cfg.CAFile),
				MatchTypedSubjectAltNames: []*tls.SubjectAltNameMatcher{{
					SanType: tls.SubjectAltNameMatcher_DNS,
					Matcher: &matcher.StringMatcher{MatchPattern: &matcher.StringMatcher_Exact{Exact: cfg.ServerName}},
				}},
			}},
		},
	}
}
