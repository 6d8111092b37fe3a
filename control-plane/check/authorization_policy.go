package check

import (
	"context"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
)

// authorizationPolicy is Istio's, as far as it says who may call.
type authorizationPolicy struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector struct {
			Labels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		// Targets are gateways and waypoints; a policy with them is none of sidecars.
		Target  any                 `json:"targetRef"`
		Targets []any               `json:"targetRefs"`
		Action  string              `json:"action"`
		Rules   []authorizationRule `json:"rules"`
	} `json:"spec"`
}

// authorizationRule matches a request that fits one of From, one of To and all of When. An
// empty list fits everything.
type authorizationRule struct {
	From []struct {
		Source source `json:"source"`
	} `json:"from"`
	To   []any       `json:"to"`
	When []condition `json:"when"`
}

// source fits who fits each of its lists; the others of its fields are not about who the
// caller is, and the same for gateway and daemon.
type source struct {
	Principals    []string `json:"principals"`
	NotPrincipals []string `json:"notPrincipals"`
	Namespaces    []string `json:"namespaces"`
	NotNamespaces []string `json:"notNamespaces"`
	Accounts      []string `json:"serviceAccounts"`
	NotAccounts   []string `json:"notServiceAccounts"`
}

type condition struct {
	Key       string   `json:"key"`
	Values    []string `json:"values"`
	NotValues []string `json:"notValues"`
}

// principal is a workload's identity in the mesh.
type principal struct{ domain, namespace, account string }

func (p principal) String() string {
	return p.domain + "/ns/" + p.namespace + "/sa/" + p.account
}

// callers are those who bring a function its requests.
type callers struct {
	daemon   principal
	gateways []principal
}

func (c *callers) add(p principal) {
	if !slices.Contains(c.gateways, p) {
		c.gateways = append(c.gateways, p)
	}
}

// authorizationPolicies are those that may concern functions.
func (l *look) authorizationPolicies(ctx context.Context) ([]authorizationPolicy, error) {
	all, err := objects.List[authorizationPolicy](ctx, l.Objects, objects.Authorizations, l.Only, "")
	if err != nil || l.Only == "" || l.Only == l.MeshNamespace {
		return all, err
	}
	root, err := objects.List[authorizationPolicy](ctx, l.Objects, objects.Authorizations, l.MeshNamespace, "")
	return append(all, root...), err
}

// selecting are the policies that the sidecars of a workload have.
func selecting(all []authorizationPolicy, w workload, root string) []authorizationPolicy {
	var found []authorizationPolicy
	for _, p := range all {
		if p.Namespace != w.namespace && p.Namespace != root || p.Spec.Target != nil || len(p.Spec.Targets) > 0 {
			continue
		}
		if labels := p.Spec.Selector.Labels; len(labels) == 0 || catalog.Matches(labels, w.pods.Labels) {
			found = append(found, p)
		}
	}
	return found
}

// excluded are the policies of a function that let a gateway's requests through, and not
// those that the daemon brings for it.
func (c callers) excluded(policies []authorizationPolicy, function string) []Problem {
	var allowed []authorizationRule // for the daemon
	for _, p := range policies {
		for _, r := range p.Spec.Rules {
			if p.allows() && r.from(c.daemon, p.Namespace) {
				allowed = append(allowed, r)
			}
		}
	}
	var problems []Problem
	for _, p := range policies {
		for _, r := range p.Spec.Rules {
			message := ""
			switch daemon := r.from(c.daemon, p.Namespace); {
			case p.allows() && !daemon && c.gateway(r, p.Namespace, true) && !slices.ContainsFunc(allowed, r.within):
				message = "it allows a gateway to call " + function + ", and not the node daemon: add the principal " + c.daemon.String()
			case p.Spec.Action == "DENY" && daemon && c.gateway(r, p.Namespace, false):
				message = "it denies " + function + " to the node daemon, and not to a gateway: except the principal " + c.daemon.String()
			}
			if message != "" {
				problems = append(problems, Problem{Object: "AuthorizationPolicy " + p.Namespace + "/" + p.Name, Message: message})
				break
			}
		}
	}
	return problems
}

func (p authorizationPolicy) allows() bool { return p.Spec.Action == "" || p.Spec.Action == "ALLOW" }

// gateway says whether the rule is about one of the gateways, or is not.
func (c callers) gateway(r authorizationRule, namespace string, is bool) bool {
	return slices.ContainsFunc(c.gateways, func(g principal) bool { return r.from(g, namespace) == is })
}

// from says whether the rule is about what the caller sends. namespace is the policy's.
func (r authorizationRule) from(caller principal, namespace string) bool {
	for _, w := range r.When {
		if texts, ok := caller.texts(w.Key, namespace); ok && !fits(texts, w.Values, w.NotValues) {
			return false
		}
	}
	if len(r.From) == 0 {
		return true
	}
	for _, f := range r.From {
		s := f.Source
		principals, _ := caller.texts("source.principal", namespace)
		namespaces, _ := caller.texts("source.namespace", namespace)
		accounts, _ := caller.texts("source.serviceAccount", namespace)
		if fits(principals, s.Principals, s.NotPrincipals) && fits(namespaces, s.Namespaces, s.NotNamespaces) && fits(accounts, s.Accounts, s.NotAccounts) {
			return true
		}
	}
	return false
}

// texts are how a policy may write a caller's attribute; none for those that are not about
// who it is.
func (p principal) texts(attribute, namespace string) ([]string, bool) {
	switch attribute {
	case "source.principal":
		normal := p
		normal.domain = meshDomainNormal
		return []string{p.String(), normal.String()}, true
	case "source.namespace":
		return []string{p.namespace}, true
	case "source.serviceAccount":
		texts := []string{p.namespace + "/" + p.account}
		if p.namespace == namespace {
			texts = append(texts, p.account)
		}
		return texts, true
	}
	return nil, false
}

// within says whether other lets through all that r does, but for who calls. Limits that are
// not the same are not compared: then it says no.
func (r authorizationRule) within(other authorizationRule) bool {
	return (len(other.To) == 0 || reflect.DeepEqual(other.To, r.To)) && (len(other.conditions()) == 0 || reflect.DeepEqual(other.conditions(), r.conditions()))
}

// conditions are those that are not about who calls.
func (r authorizationRule) conditions() []condition {
	return slices.DeleteFunc(slices.Clone(r.When), func(c condition) bool {
		_, who := principal{}.texts(c.Key, "")
		return who
	})
}

// fits says whether one of the texts fits one of the patterns, if there are any, and none
// one of the others.
func fits(texts, patterns, not []string) bool {
	one := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool {
			return slices.ContainsFunc(texts, func(text string) bool { return wildcard(pattern, text) })
		})
	}
	return (len(patterns) == 0 || one(patterns)) && !one(not)
}

// wildcard compares as Istio does: with * at the end, at the beginning, or alone.
func wildcard(pattern, text string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(text, prefix)
	}
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(text, suffix)
	}
	return pattern == text
}
