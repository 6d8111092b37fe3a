package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

// Account is the control plane's own service account, which gets policies of its own: RBAC says which
// kinds of objects it may write, and these say which objects. Whoever has its token can do no more.
type Account struct {
	// Namespace is the installation's.
	Namespace string
	// Functions are the namespaces that may have functions, as a CEL list; all if it is empty.
	Functions string
}

// AccountPlaceholder stands for both in the file that is part of the chart.
var AccountPlaceholder = Account{Namespace: "RELEASE_NAMESPACE", Functions: "FUNCTION_NAMESPACES"}

// Policies returns the policies for what the account writes.
func (a Account) Policies() ([]Policy, error) {
	filters, err := a.filters()
	if err != nil {
		return nil, err
	}
	prefetch, err := a.prefetch()
	if err != nil {
		return nil, err
	}
	return []Policy{filters, prefetch, a.scales(), a.events()}, nil
}

// policy refuses what the account writes or deletes, unless valid holds. What cannot be judged is refused.
func (a Account) policy(name string, objects []admissionv1.Rule, valid, message string, variables ...variable) Policy {
	spec := admissionv1.ValidatingAdmissionPolicySpec{
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "by-the-control-plane",
			Expression: "request.userInfo.username == 'system:serviceaccount:" + a.Namespace + ":headstart-controlplane'",
		}},
		Validations: []admissionv1.Validation{{
			Expression: valid, Message: "the control plane's service account may write only " + message,
			Reason: new(metav1.StatusReasonForbidden),
		}},
	}
	// Not of the type that the API server knows: what is compared with them is of none.
	for _, v := range append([]variable{{"now", "dyn(object)"}, {"before", "dyn(oldObject)"}}, variables...) {
		spec.Variables = append(spec.Variables, admissionv1.Variable{Name: v.name, Expression: v.expression})
	}
	p := newPolicy(name, admissionv1.Fail, objects, spec)
	for i := range p.Policy.Spec.MatchConstraints.ResourceRules {
		rule := &p.Policy.Spec.MatchConstraints.ResourceRules[i]
		rule.Operations = append(rule.Operations, admissionv1.Delete)
	}
	return p
}

// allows is the CEL of whether a namespace may have functions.
func (a Account) allows(namespace string) string {
	return fmt.Sprintf("(%[1]s.size() == 0 || %[2]s in %[1]s)", a.Functions, namespace)
}

// What of an EnvoyFilter is its function's own. All else is the same in all of them.
var sample = istio.Function{
	Name: "namespace/function", Service: istio.Service{Host: "HOST", Port: 1, Endpoints: "ENDPOINTS"},
}

// sampleInput is a template, of which the filter's text is made that a function with an input has.
const sampleInput = "s3://bucket/key"

// filters allows the EnvoyFilters that istio.Object makes, to the letter: each gives one cluster, of a Service
// in its function's namespace, the endpoints of the node's daemon.
func (a Account) filters() (Policy, error) {
	own := map[string]string{
		sample.Name: "variables.whose", "outbound|1||HOST": "variables.cluster",
		"ENDPOINTS": "variables.whose + ':' + variables.cluster.split('|')[1]",
	}
	var same []string
	var labels map[string]string
	inputs := reference.Inputs{"": sampleInput}
	for _, of := range []filterapi.Function{{}, {Input: sampleInput}, {Observed: inputs}} {
		f := sample
		f.Observed = of.Observed
		if of.Input != "" {
			f.Inputs = inputs
		}
		of.Name = sample.Name
		text, err := of.Marshal()
		if err != nil {
			return Policy{}, err
		}
		own[string(text)] = "variables.templates"
		made, err := istio.Object(istio.Config{}, f)
		if err != nil {
			return Policy{}, err
		}
		labels = made.GetLabels()
		is := "variables.now.?spec.orValue({}) == " + literal(made.Object["spec"], own)
		if len(of.Templates()) > 0 { // the text for the prefetch filter begins with the function that it is of
			is += " &&\nvariables.templates.startsWith('{\"name\":\"' + variables.whose + '\",')"
		}
		same = append(same, is)
	}
	ours := func(of string) string {
		var all []string
		for _, key := range slices.Sorted(maps.Keys(labels)) {
			all = append(all, fmt.Sprintf("%s.metadata.?labels[?%s].orValue('') == %s", of, quote(key), quote(labels[key])))
		}
		return strings.Join(all, " && ")
	}
	prefix := istio.ObjectName("")
	return a.policy("headstart-controlplane-filters", ofIstio(istio.EnvoyFilter),
		"variables.name.size() == 3 && variables.name[0] == "+quote(strings.TrimSuffix(prefix, "."))+" &&\n"+
			"(variables.before == null || "+ours("variables.before")+") && (variables.now == null ||\n"+
			ours("variables.now")+" &&\n"+a.allows("variables.name[1]")+" &&\n"+
			`variables.cluster.matches(r'^outbound\|[0-9]{1,5}\|\|[a-z0-9-]+\.[a-z0-9-]+\.svc\.cluster\.local$') &&`+"\n"+
			// A Knative Service's function has the Service of a revision, whose name begins with its own.
			"(variables.host.startsWith(variables.name[2] + '.') || variables.host.startsWith(variables.name[2] + '-')) &&\n"+
			"variables.host.endsWith('.' + variables.name[1] + '.svc.cluster.local') &&\n("+strings.Join(same, " ||\n")+"))",
		"EnvoyFilters of functions, named "+prefix+"<namespace>.<name>, as Headstart makes them and in namespaces that "+
			"may have functions; if others have changed this one, delete it",
		variable{"name", "(variables.now == null ? variables.before : variables.now).metadata.name.split('.')"},
		variable{"whose", "variables.name.size() == 3 ? variables.name[1] + '/' + variables.name[2] : ''"},
		variable{"cluster", "variables.now == null ? '' : variables.now.?spec.?configPatches[?0].?match.?cluster.?name.orValue('')"},
		variable{"host", "variables.cluster.substring(variables.cluster.lastIndexOf('|') + 1)"},
		variable{"templates", "variables.now == null ? '' : variables.now.?spec.?configPatches[?0].?patch.?value.?metadata" +
			".?filter_metadata.?" + filterapi.MetadataNamespace + ".?" + filterapi.MetadataPrefetch + ".orValue('')"},
	), nil
}

// prefetch allows the prefetch filter's configuration, which is always the same, and nothing else of what
// brings the filter: neither its code nor its place.
func (a Account) prefetch() (Policy, error) {
	text, err := istio.PluginConfig()
	if err != nil {
		return Policy{}, err
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return Policy{}, err
	}
	metadata := func(key string) string {
		return fmt.Sprintf("variables.now.metadata.?%[1]s.orValue({}) == variables.before.metadata.?%[1]s.orValue({})", key)
	}
	return a.policy("headstart-controlplane-prefetch", ofIstio(istio.TrafficExtension, istio.WasmPlugin),
		"variables.now != null && variables.before != null && "+metadata("labels")+" && "+metadata("annotations")+" &&\n"+
			unchanged("variables.spec", "variables.oldSpec", "['wasm', 'pluginConfig']")+" &&\n"+
			unchanged("variables.spec.?wasm.orValue({})", "variables.oldSpec.?wasm.orValue({})", "['pluginConfig']")+" &&\n"+
			"variables.config == "+literal(config, nil),
		"the pluginConfig of what brings the prefetch filter, with the daemons' cluster and socket",
		variable{"spec", "variables.now == null ? dyn({}) : variables.now.?spec.orValue({})"},
		variable{"oldSpec", "variables.before == null ? dyn({}) : variables.before.?spec.orValue({})"},
		variable{"config", "variables.spec.?wasm.?pluginConfig.orValue(variables.spec.?pluginConfig.orValue({}))"},
	), nil
}

// unchanged is the CEL of two maps having the same members, but for some keys.
func unchanged(a, b, but string) string {
	return fmt.Sprintf("%[1]s.all(k, k in %[3]s || k in %[2]s && %[1]s[k] == %[2]s[k]) && %[2]s.all(k, k in %[3]s || k in %[1]s)",
		a, b, but)
}

// scales allows to scale to zero, from zero to the replicas that a workload may have had, and else up by one pod more than
// there are, in namespaces that may have functions.
func (a Account) scales() Policy {
	return a.policy("headstart-controlplane-scales", []admissionv1.Rule{{
		APIGroups: []string{"apps"}, APIVersions: []string{"v1"},
		Resources: []string{"deployments/scale", "statefulsets/scale"},
	}}, "variables.now != null && variables.before != null && "+a.allows("request.namespace")+" &&\n"+
		"(variables.now.?spec.?replicas.orValue(0) <= variables.before.?status.?replicas.orValue(0) + 1 ||\n"+
		fmt.Sprintf("variables.before.?spec.?replicas.orValue(0) == 0 && variables.now.?spec.?replicas.orValue(0) <= %d)", object.ReplicasMost),
		"scales to zero, from zero to the replicas that there were, or to one pod more than there are, in namespaces that may have functions "+
			"(the chart's value namespaces)")
}

// events allows events about Services, by the control plane.
func (a Account) events() Policy {
	return a.policy("headstart-controlplane-events", []admissionv1.Rule{{
		APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"events"},
	}}, "variables.now != null && variables.before == null && variables.now.involvedObject.?kind.orValue('') == 'Service' &&\n"+
		"variables.now.?source.?component.orValue('') == 'headstart-controlplane' &&\n"+
		"variables.now.?reportingComponent.orValue('') == 'headstart-controlplane'",
		"new events about Services, in its own name")
}

// ofIstio are the rules for Istio's kinds.
func ofIstio(kinds ...istio.Kind) []admissionv1.Rule {
	var all []admissionv1.Rule
	for _, k := range kinds {
		all = append(all, admissionv1.Rule{
			APIGroups: []string{k.GVK.Group}, APIVersions: []string{"*"}, Resources: []string{k.Resource},
		})
	}
	return all
}

// literal is a value of JSON as CEL, in which expressions take the place of some strings. Kubernetes has the members
// of a list, or a map, be of one type: dyn.
func literal(v any, own map[string]string) string {
	switch v := v.(type) {
	case map[string]any:
		var members []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			members = append(members, quote(key)+": dyn("+literal(v[key], own)+")")
		}
		return "{" + strings.Join(members, ", ") + "}"
	case []any:
		var members []string
		for _, member := range v {
			members = append(members, "dyn("+literal(member, own)+")")
		}
		return "[" + strings.Join(members, ", ") + "]"
	case string:
		if expression, ok := own[v]; ok {
			return expression
		}
		return quote(v)
	}
	return fmt.Sprint(v) // a number, or a truth value
}
