package istio

import (
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	leastrequest "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/least_request/v3"
	overridehost "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/override_host/v3"
	rawbuffer "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/upstream"
)

const (
	// endpointsTimeout is how long Envoy waits for a cluster's endpoints before it goes on
	// without. When Istio changes a cluster, the old one serves until then, so it is
	// longer than a daemon's update with a pull of its image. A gateway that starts on a
	// node without a daemon is held up by it once.
	endpointsTimeout = 30 * time.Second
	// reconnectBase and reconnectMax bound how long a gateway goes without new endpoints
	// after its daemon is back. Envoy's own maximum is 30 s.
	reconnectBase = 50 * time.Millisecond
	reconnectMax  = time.Second
	// suppress keeps istioctl analyze from telling of each object that it is an EnvoyFilter.
	suppress = "galley.istio.io/analyze-suppress"
	// metadataEndpoint is where, in the metadata of an Envoy cluster (filterapi.MetadataNamespace), its requests go
	// that no filter has looked at.
	metadataEndpoint = "endpoint"
)

// envoyFilter gives the cluster of f's service to us, in gateways that have our
// sockets. It matches the cluster by its whole name: those of a DestinationRule's
// subsets keep Istio's endpoints, as ours know nothing of subsets.
func envoyFilter(cfg Config, f Function) (*unstructured.Unstructured, error) {
	value, err := clusterPatch(f)
	if err != nil {
		return nil, err
	}
	spec := &networking.EnvoyFilter{ConfigPatches: []*networking.EnvoyFilter_EnvoyConfigObjectPatch{{
		ApplyTo: networking.EnvoyFilter_CLUSTER,
		Match: &networking.EnvoyFilter_EnvoyConfigObjectMatch{
			Context: networking.EnvoyFilter_GATEWAY,
			Proxy:   &networking.EnvoyFilter_ProxyMatch{Metadata: map[string]string{MetadataKey: MetadataValue}},
			ObjectTypes: &networking.EnvoyFilter_EnvoyConfigObjectMatch_Cluster{Cluster: &networking.EnvoyFilter_ClusterMatch{
				Name: f.Service.cluster(),
			}},
		},
		Patch: &networking.EnvoyFilter_Patch{Operation: networking.EnvoyFilter_Patch_MERGE, Value: value},
	}}}
	fields, err := object(spec, protojson.MarshalOptions{})
	if err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	o.SetGroupVersionKind(EnvoyFilter.GVK)
	o.SetNamespace(cfg.namespace())
	o.SetName(ObjectName(f.Name))
	labels := map[string]string{labelManagedBy: managedBy, labelComponent: component}
	if cfg.Revision != "" {
		labels[labelRevision] = cfg.Revision
	}
	o.SetLabels(labels)
	o.SetAnnotations(map[string]string{suppress: "IST0133"})
	return o, nil
}

// clusterPatch leaves Istio's transport socket matches, protocol options and connection
// pool as they are: instances with a sidecar are reached by mutual TLS as before. Of an observed
// function it leaves all as it is, and only says to the prefetch filter what to name.
func clusterPatch(f Function) (*structpb.Struct, error) {
	metadata := map[string]*structpb.Value{}
	if len(f.Inputs)+len(f.Observed) > 0 {
		prefetch := filterapi.Function{Name: f.Name, Input: f.Inputs[""], Inputs: f.Inputs.Named(), Observed: f.Observed}
		text, err := prefetch.Marshal()
		if err != nil {
			return nil, err
		}
		metadata[filterapi.MetadataPrefetch] = structpb.NewStringValue(string(text))
	}
	if len(f.Observed) > 0 {
		return patch(&cluster.Cluster{Metadata: about(metadata)})
	}
	if len(f.Inputs) > 0 {
		metadata[metadataEndpoint] = structpb.NewStringValue(IngressSocket)
	}
	metadata[filterapi.MetadataFunction] = structpb.NewStringValue(f.Name)
	policy, err := loadBalancing()
	if err != nil {
		return nil, err
	}
	plain, err := anypb.New(&rawbuffer.RawBuffer{})
	if err != nil {
		return nil, err
	}
	return patch(&cluster.Cluster{
		EdsClusterConfig: &cluster.Cluster_EdsClusterConfig{
			EdsConfig: endpointsSource(), ServiceName: f.Service.Endpoints,
		},
		LoadBalancingPolicy: policy,
		// Istio would have requests wait for 10 s for a connection, and for an answer without end.
		ConnectTimeout:            durationpb.New(upstream.MeshConnectTimeout),
		UpstreamConnectionOptions: upstream.Connection(),
		// The node's daemon stays plain, also when a DestinationRule has set a transport
		// socket for the whole cluster. Istio's own matches come before this one.
		TransportSocketMatches: []*cluster.Cluster_TransportSocketMatch{{
			Name:  "headstart-node",
			Match: &structpb.Struct{Fields: map[string]*structpb.Value{NodeSocketKey: structpb.NewStringValue(NodeSocket)}},
			TransportSocket: &core.TransportSocket{
				Name:       "envoy.transport_sockets.raw_buffer",
				ConfigType: &core.TransportSocket_TypedConfig{TypedConfig: plain},
			},
		}},
		Metadata: about(metadata),
	})
}

// about is the metadata of a function's cluster.
func about(metadata map[string]*structpb.Value) *core.Metadata {
	return &core.Metadata{FilterMetadata: map[string]*structpb.Struct{filterapi.MetadataNamespace: {Fields: metadata}}}
}

// patch is what of a cluster is to be merged.
func patch(c *cluster.Cluster) (*structpb.Struct, error) {
	fields, err := object(c, protojson.MarshalOptions{UseProtoNames: true})
	if err != nil {
		return nil, err
	}
	return structpb.NewStruct(fields)
}

func endpointsSource() *core.ConfigSource {
	return &core.ConfigSource{
		ResourceApiVersion:  core.ApiVersion_V3,
		InitialFetchTimeout: durationpb.New(endpointsTimeout),
		ConfigSourceSpecifier: &core.ConfigSource_ApiConfigSource{ApiConfigSource: &core.ApiConfigSource{
			ApiType:                   core.ApiConfigSource_DELTA_GRPC,
			TransportApiVersion:       core.ApiVersion_V3,
			SetNodeOnFirstMessageOnly: true,
			GrpcServices: []*core.GrpcService{{TargetSpecifier: &core.GrpcService_EnvoyGrpc_{EnvoyGrpc: &core.GrpcService_EnvoyGrpc{
				ClusterName: GatewayCluster,
				RetryPolicy: &core.RetryPolicy{RetryBackOff: &core.BackoffStrategy{
					BaseInterval: durationpb.New(reconnectBase), MaxInterval: durationpb.New(reconnectMax),
				}},
			}}}},
		}},
	}
}

// loadBalancing sends a request where its header says, and all others to the ready
// instance with the fewest.
func loadBalancing() (*cluster.LoadBalancingPolicy, error) {
	fallback, err := policyOf("envoy.load_balancing_policies.least_request", &leastrequest.LeastRequest{})
	if err != nil {
		return nil, err
	}
	return policyOf("envoy.load_balancing_policies.override_host", &overridehost.OverrideHost{
		OverrideHostSources: []*overridehost.OverrideHost_OverrideHostSource{{Header: filterapi.HeaderEndpoint}},
		FallbackPolicy:      fallback,
	})
}

func policyOf(name string, config proto.Message) (*cluster.LoadBalancingPolicy, error) {
	typed, err := anypb.New(config)
	if err != nil {
		return nil, err
	}
	return &cluster.LoadBalancingPolicy{Policies: []*cluster.LoadBalancingPolicy_Policy{{
		TypedExtensionConfig: &core.TypedExtensionConfig{Name: name, TypedConfig: typed},
	}}}, nil
}

// object turns a message into what its JSON is.
func object(m proto.Message, options protojson.MarshalOptions) (map[string]any, error) {
	data, err := options.Marshal(m)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	return fields, json.Unmarshal(data, &fields)
}
