package check

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// installed is what the installation makes, and where. Where the gateways are, the cluster
// says.
var installed = []struct {
	resource  schema.GroupVersionResource
	namespace func(Env) string
}{
	{objects.Namespaces, everywhere}, {objects.RuntimeClasses, everywhere}, {objects.Definitions, everywhere},
	{objects.ClusterRoles, everywhere}, {objects.ClusterRoleBindings, everywhere},
	{objects.AdmissionPolicies, everywhere}, {objects.AdmissionBindings, everywhere},
	{objects.MutatingPolicies, everywhere}, {objects.MutatingBindings, everywhere},
	{objects.Accounts, ours}, {objects.Roles, ours}, {objects.RoleBindings, ours},
	{objects.ConfigMaps, ours}, {objects.Secrets, ours}, {objects.Services, ours},
	{objects.Deployments, ours}, {objects.DaemonSets, ours}, {objects.Jobs, ours}, {objects.Leases, ours}, {objects.Budgets, ours},
	{objects.NetworkPolicies, ours}, {objects.PodMonitors, ours}, {objects.Alerts, ours},
	{objects.Roles, events}, {objects.RoleBindings, events},
	{objects.Roles, mesh}, {objects.RoleBindings, mesh},
	{objects.EnvoyFilters, mesh}, {objects.TrafficExtensions, mesh}, {objects.WasmPlugins, mesh}, {objects.Telemetries, mesh},
}

func everywhere(Env) string { return "" }
func ours(e Env) string     { return e.Namespace }
func mesh(e Env) string     { return e.MeshNamespace }

// events is where the installer writes events of nodes, which are in no namespace.
func events(Env) string { return "default" }

// right is what one has to be allowed to make, change and delete.
type right struct {
	resource  schema.GroupVersionResource
	namespace string
}

// rights are those that the installation needs.
func (l *look) rights(ctx context.Context) []right {
	var all []right
	for _, i := range installed {
		all = append(all, right{i.resource, i.namespace(l.Env)})
	}
	pods, err := l.gatewayPods(ctx)
	if err != nil { // who may not see the gateways may install
		return all
	}
	for _, p := range pods {
		r := right{objects.Telemetries, p.Namespace}
		if p.Labels[gatewayLabel] == "true" && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
}

func lookRights(ctx context.Context, l *look) Outcome {
	var lacking []Problem
	asked := 0
	for _, r := range l.rights(ctx) {
		if served, err := l.Objects.Serves(ctx, r.resource); err == nil && !served {
			continue // another check's, or of a part that this cluster cannot have
		}
		for _, verb := range []string{"create", "patch", "delete"} {
			may, err := l.Objects.May(ctx, verb, r.resource, r.namespace)
			if err != nil {
				return unknown("your rights", err)
			}
			asked++
			if may {
				continue
			}
			p := Problem{Message: "you may not " + verb + " " + r.resource.GroupResource().String()}
			if r.namespace != "" {
				p.Message += " in namespace " + r.namespace
			}
			lacking = append(lacking, p)
		}
	}
	if len(lacking) > 0 {
		return fail("%d of %d lack", len(lacking), asked).with(lacking)
	}
	return pass("all %d", asked)
}
