package istio

import "github.com/headstart-mesh/headstart/filters/filterapi"

// hintCluster is the gateways' cluster of their node's daemon, for hints. manifests/istio/gateways.yaml has
// it, too.
const hintCluster = "headstart-hints"

// PluginConfig is the prefetch filter's configuration. It is always the same: what the filter has to know of
// a function is in the function's own object.
func PluginConfig() ([]byte, error) {
	c := filterapi.Config{Version: filterapi.Version, HintCluster: hintCluster, IngressEndpoint: IngressSocket}
	return c.Marshal()
}
