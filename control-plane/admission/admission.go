// Package admission writes the ValidatingAdmissionPolicies that refuse wrong annotations
// when they come to the API server of Kubernetes, and routes that speak as a gateway. The rules are CEL,
// those of annotations made from the table that policy.Parse checks by: there is no webhook to run, and
// none that could be away.
package admission

import (
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// Policy is one policy with what makes it count.
type Policy struct {
	Policy  admissionv1.ValidatingAdmissionPolicy
	Binding admissionv1.ValidatingAdmissionPolicyBinding
}

// kind is one kind of object that functions are made of, or jobs.
type kind struct {
	name string
	rule admissionv1.Rule
	when string // what of an object has to change to be looked at
	// unless: what else keeps it from being looked at; empty: nothing.
	unless string
	// on says which annotations it may have.
	on    policy.Objects
	extra []variable
	// problems are names of variables of its own.
	problems []string
}

// The kinds. Knative's may not exist in a cluster; a rule for it then matches nothing.
var kinds = []kind{
	{
		name:   "headstart-services",
		when:   changed,
		unless: ofKnative,
		rule:   admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"services"}},

		on:       policy.Functions,
		extra:    slices.Concat(pathMatches, triggerGranted, modeMatches),
		problems: []string{"pathMatchProblem", "triggerGrantProblem", "modeMatchProblem"},
	},
	{
		name:     "headstart-knative-services",
		when:     changedTemplate,
		rule:     admissionv1.Rule{APIGroups: []string{"serving.knative.dev"}, APIVersions: []string{"v1"}, Resources: []string{"services"}},
		extra:    slices.Concat(pathMatches, triggerGranted, modeMatches, template, templateMatches),
		problems: []string{"pathMatchProblem", "triggerGrantProblem", "modeMatchProblem", "templateProblem", "templateMatchProblem"},

		on: policy.Functions,
	},
	{
		// Jobs are pods, whatever has made them.
		name: "headstart-pods",
		when: changed,
		rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},

		on:       policy.Jobs,
		extra:    slices.Concat(volumesGranted, connectionsGranted, runtimeClass),
		problems: []string{"volumesGrantProblem", "connectionsGrantProblem", "runtimeClassProblem"},
	},
}

// Stores are the operator's stores as a CEL expression: a list of maps with the store's
// "name", the "schemes" of its references, its "buckets", and the
// "namespaces" that it is granted to, all if empty. Each is a list, since Kubernetes has the
// values of a map be of one type.
type Stores string

// Placeholder stands for the stores in the file that is part of the chart.
const Placeholder Stores = "STORES"

// Destinations are the operator's destinations in the same way: a list of maps with "name" and "namespaces".
type Destinations string

// DestinationsPlaceholder stands for them in that file.
const DestinationsPlaceholder Destinations = "DESTINATIONS"

// Policies returns the policies for the operator's stores and destinations.
func Policies(stores Stores, destinations Destinations) []Policy {
	var all []Policy
	for _, k := range kinds {
		all = append(all, k.policy(stores, destinations))
	}
	return append(all, routes(), addresses())
}

func (k kind) policy(stores Stores, destinations Destinations) Policy {
	// What Headstart cannot judge goes on as without it: the control plane looks again.
	conditions := []admissionv1.MatchCondition{{Name: "an-annotation-of-headstart-changes", Expression: k.when}}
	if k.unless != "" {
		conditions = append(conditions, admissionv1.MatchCondition{Name: "it-asks-for-itself", Expression: "!(" + k.unless + ")"})
	}
	return newPolicy(k.name, admissionv1.Ignore, []admissionv1.Rule{k.rule}, admissionv1.ValidatingAdmissionPolicySpec{
		MatchConditions: conditions,
		Variables:       k.variables(stores, destinations),
		Validations: []admissionv1.Validation{{
			Expression:        "variables.problems.size() == 0",
			Message:           "an annotation of headstart.dev/ is wrong",
			MessageExpression: "variables.problems.join('; and ')",
		}},
	})
}

// newPolicy completes the policy for new and changed objects of these kinds.
func newPolicy(name string, failure admissionv1.FailurePolicyType, objects []admissionv1.Rule,
	spec admissionv1.ValidatingAdmissionPolicySpec,
) Policy {
	exact := admissionv1.Equivalent
	spec.FailurePolicy, spec.MatchConstraints = &failure, &admissionv1.MatchResources{MatchPolicy: &exact}
	for _, o := range objects {
		spec.MatchConstraints.ResourceRules = append(spec.MatchConstraints.ResourceRules,
			admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update}, Rule: o,
			}})
	}
	return Policy{
		Policy: admissionv1.ValidatingAdmissionPolicy{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       spec,
		},
		Binding: admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

// variables are the policy's, each of which is defined for every object: whichever of
// them is looked at, none fails.
func (k kind) variables(stores Stores, destinations Destinations) []admissionv1.Variable {
	keys := policy.Keys(k.on)
	all := []variable{
		{"annotations", "has(object.metadata.annotations) ? object.metadata.annotations : {}"},
		{"stores", "dyn(\n  " + string(stores) + "\n)"},
		{"unknown", unknownKeys(k.on, keys)},
		{"unknownProblem", unknownProblem(k.on, keys)},
	}
	if k.on == policy.Jobs {
		all = append(all, variable{"destinations", "dyn(\n  " + string(destinations) + "\n)"})
	}
	problems := []string{"unknownProblem"}
	for _, a := range policy.Annotations(k.on) {
		var vs []variable
		switch a.Key {
		case policy.KeyInput:
			vs = inputs(k.on, a)
		case policy.KeyNamedInput: // is one of the inputs
			continue
		default:
			vs = rules(a)
		}
		all = append(all, vs...)
		problems = append(problems, vs[len(vs)-1].name)
	}
	all = append(append(all, granted...), k.extra...)
	problems = append(append(problems, "grantProblem"), k.problems...)
	for i, p := range problems {
		problems[i] = "variables." + p
	}
	all = append(all, variable{"problems", "[" + strings.Join(problems, ", ") + "].filter(p, p != '')"})
	out := make([]admissionv1.Variable, len(all))
	for i, v := range all {
		// The line's end has YAML write it in block style, in which nothing is escaped.
		out[i] = admissionv1.Variable{Name: v.name, Expression: v.expression + "\n"}
	}
	return out
}
