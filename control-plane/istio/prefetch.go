package istio

import (
	"cmp"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// hintCluster is the gateways' cluster of their node's daemon, for hints. manifests/istio/gateways.yaml has
// it, too.
const hintCluster = "headstart-hints"

// PluginConfig is the prefetch filter's configuration: all functions of st, always the same text for
// the same state. A host that several functions claim belongs to the first of them by name. A host that is not
// of the function's namespace, and a function without a host of its own, are left out.
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
		namespace, _, _ := strings.Cut(f.Name, "/")
		fn := filterapi.Function{Name: f.Name, Input: templates[""], Inputs: templates.Named()}
		for _, h := range f.Hosts {
			if !taken[h] && HostOf(h, namespace) {
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

// HostOf is whether a host may be one of a namespace's functions: its second label is the namespace, as Kubernetes and
// Knative name hosts, or its first label ends with it (domain templates such as {{.Name}}-{{.Namespace}}.{{.Domain}}).
// Gateways of a mesh know functions by their clusters, whose hosts are all of the first form. An admission policy
// refuses all others (control-plane/admission).
func HostOf(host, namespace string) bool {
	first, rest, more := strings.Cut(host, ".")
	second, _, _ := strings.Cut(rest, ".")
	return more && (second == namespace || strings.HasSuffix(first, "-"+namespace) && !strings.HasSuffix(host, ".svc.cluster.local"))
}
