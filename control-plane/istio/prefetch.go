package istio

import (
	"cmp"
	"slices"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// hintCluster is the gateways' cluster of their node's daemon, for hints. manifests/istio/gateways.yaml has
// it, too.
const hintCluster = "headstart-hints"

// PluginConfig is the prefetch filter's configuration: all functions of st, always the same text for
// the same state. A host that several functions claim belongs to the first of them by name; a function
// without a host of its own is left out.
func PluginConfig(st platform.State) ([]byte, error) {
	functions := slices.Clone(st.Functions)
	slices.SortFunc(functions, func(a, b platform.Function) int { return cmp.Compare(a.Name, b.Name) })
	taken := make(map[string]bool)
	c := filterapi.Config{
		Version: filterapi.Version, HintCluster: hintCluster, IngressEndpoint: IngressSocket,
		Functions: []filterapi.Function{},
	}
	for _, f := range functions {
		templates := f.Policy.Templates()
		fn := filterapi.Function{Name: f.Name, Input: templates[""], Inputs: templates.Named()}
		for _, h := range f.Hosts {
			if !taken[h] {
				taken[h] = true
				fn.Hosts = append(fn.Hosts, h)
			}
		}
		if len(fn.Hosts) > 0 {
			c.Functions = append(c.Functions, fn)
		}
	}
	return c.Marshal()
}
