//go:build integration

package replicas

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

// object is JSON.
type object = map[string]any

// gatewayDir is where gateways have their node's daemon, each its own.
const gatewayDir = "/run/headstart/gateway"

// daemonCluster is the cluster of the node's daemon, as the EnvoyFilter brings it.
func daemonCluster() object {
	var gateways struct {
		Spec struct {
			ConfigPatches []struct {
				Patch struct{ Value object }
			} `json:"configPatches"`
		}
	}
	text, err := os.ReadFile("../../manifests/istio/gateways.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &gateways)
	}
	if err != nil {
		panic(err)
	}
	return gateways.Spec.ConfigPatches[0].Patch.Value
}

// bootstrap is a mesh's gateway, with what Headstart's EnvoyFilters add to it: endpoints from
// the daemon, and a report to it of each request. Its retries are Istio's.
func bootstrap(n *node) object {
	var hosts, clusters []object
	names := []string{hot}
	for i := range coldOnes {
		names = append(names, cold(i))
	}
	for _, name := range names {
		hosts = append(hosts, object{"name": name, "domains": []string{name + ".test"}, "routes": []object{{
			"match": object{"prefix": "/"},
			"route": object{"cluster": name, "timeout": "0s", "retry_policy": object{"num_retries": 2,
				"retry_on": "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes", "retriable_status_codes": []int{503}}},
			// What an older daemon goes by.
			"request_headers_to_add": []object{{"header": object{"key": "x-headstart-function", "value": functions + "/" + name}}},
		}}})
		clusters = append(clusters, object{"name": name, "type": "EDS", "connect_timeout": "10s",
			"metadata": object{"filter_metadata": object{"headstart": object{"function": functions + "/" + name}}},
			"eds_cluster_config": object{"service_name": fmt.Sprintf("%s/%s:80", functions, name), "eds_config": object{"resource_api_version": "V3", "initial_fetch_timeout": "0s",
				"api_config_source": object{"api_type": "DELTA_GRPC", "transport_api_version": "V3", "grpc_services": []object{{"envoy_grpc": object{"cluster_name": "headstart-gateway"}}}}}}})
	}
	clusters = append(clusters, daemonCluster())
	report := object{"name": "headstart",
		"filter": object{"log_type_filter": object{"types": []string{"UpstreamPoolReady", "UpstreamPeriodic"}}},
		"typed_config": object{"@type": "type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig", "common_config": object{
			"log_name": "headstart", "transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": "headstart-gateway"}}, "buffer_flush_interval": "0.2s",
			"custom_tags": []object{{"tag": "headstart.function", "metadata": object{"kind": object{"cluster": object{}}, "metadata_key": object{"key": "headstart", "path": []object{{"key": "function"}}}}}}}}}
	from := func(key, field string) object { // the daemon's own endpoint, as keys.yaml has it
		return object{"append": object{"header": object{"key": key, "value": "%METADATA(UPSTREAM_HOST:headstart:" + field + ")%"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}
	}
	keys := []object{
		{"name": "headstart-function", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
			"mutations": object{"request_mutations": []object{from("x-headstart-function", "function"), from("x-headstart-key", "key")}}}},
		{"name": "envoy.filters.http.upstream_codec", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"}},
	}
	return object{
		"node": object{"id": n.name, "cluster": "gateways"},
		"static_resources": object{"clusters": clusters, "listeners": []object{{"name": "gateway",
			"address": object{"socket_address": object{"address": "127.0.0.1", "port_value": n.port}},
			"filter_chains": []object{{"filters": []object{{"name": "envoy.filters.network.http_connection_manager", "typed_config": object{
				"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": "gateway", "route_config": object{"virtual_hosts": hosts},
				"http_filters": []object{{"name": "envoy.filters.http.router", "typed_config": object{
					"@type":                 "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
					"upstream_log_options":  object{"flush_upstream_log_on_upstream_stream": true, "upstream_log_flush_interval": "1s"},
					"upstream_http_filters": keys,
					"upstream_log":          []object{report}}}}}}}}}}}},
	}
}
