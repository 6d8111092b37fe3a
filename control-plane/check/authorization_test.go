package check_test

import (
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

const (
	gatewayPrincipal = "cluster.local/ns/istio-system/sa/istio-ingressgateway-service-account"
	daemonPrincipal  = "cluster.local/ns/headstart-system/sa/headstart-node"
	withoutDaemon    = "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: fire, namespace: default}, spec: {selector: {matchLabels: {app: fire}}, rules: [{from: [{source: {principals: [" + gatewayPrincipal + "]}}]}]}}"
)

// authorizationPolicy is one of namespace default, or the namespace before a slash.
func authorizationPolicy(name, spec string) string {
	namespace, name, ok := strings.Cut("default/"+name, "/")
	if before, after, more := strings.Cut(name, "/"); ok && more {
		namespace, name = before, after
	}
	spec = strings.NewReplacer("GATEWAY", gatewayPrincipal, "DAEMON", daemonPrincipal).Replace(spec)
	return "{apiVersion: security.istio.io/v1, kind: AuthorizationPolicy, metadata: {name: " + name + ", namespace: " + namespace + "}, spec: " + spec + "}"
}

// Each case has these policies, and none else.
func TestPoliciesThatDenyTheDaemon(t *testing.T) {
	const of = "from: [{source: {"
	for what, c := range map[string]struct {
		policies map[string]string
		denies   string // the policies that the check names, with commas between
	}{
		"gateway only":                     {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, "a"},
		"for all of the namespace":         {map[string]string{"a": `{action: ALLOW, rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, "a"},
		"of the root namespace":            {map[string]string{"istio-system/a": `{rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, "a"},
		"of another namespace":             {map[string]string{"video/a": `{rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, ""},
		"of other pods":                    {map[string]string{"a": `{selector: {matchLabels: {app: other}}, rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, ""},
		"of a waypoint":                    {map[string]string{"a": `{targetRefs: [{kind: Service, name: fire}], rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, ""},
		"of a waypoint, as it was":         {map[string]string{"a": `{targetRef: {kind: Service, name: fire}, rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, ""},
		"both":                             {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY, DAEMON]}}]}]}`}, ""},
		"both, in two sources":             {map[string]string{"a": `{rules: [{from: [{source: {principals: [GATEWAY]}}, {source: {principals: [DAEMON]}}]}]}`}, ""},
		"both, in two rules":               {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}]}, {` + of + `principals: [DAEMON]}}]}]}`}, ""},
		"both, in two policies":            {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}]}]}`, "b": `{rules: [{` + of + `principals: [DAEMON]}}]}]}`}, ""},
		"the daemon for less":              {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}]}, {` + of + `principals: [DAEMON]}}], to: [{operation: {paths: [/x]}}]}]}`}, "a"},
		"the daemon for the same":          {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}], to: [{operation: {paths: [/x]}}]}, {` + of + `principals: [DAEMON]}}], to: [{operation: {paths: [/x]}}]}]}`}, ""},
		"the daemon for more":              {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}], to: [{operation: {paths: [/x]}}]}, {` + of + `principals: [DAEMON]}}]}]}`}, ""},
		"the daemon by another condition":  {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}]}, {` + of + `principals: [DAEMON]}}], when: [{key: "request.headers[x]", values: [z]}]}]}`}, "a"},
		"everybody":                        {map[string]string{"a": `{rules: [{}]}`}, ""},
		"everybody by health path":         {map[string]string{"a": `{rules: [{to: [{operation: {paths: [/health]}}]}, {` + of + `principals: [GATEWAY]}}]}]}`}, "a"},
		"nobody":                           {map[string]string{"a": `{}`}, ""},
		"somebody else":                    {map[string]string{"a": `{rules: [{` + of + `principals: [cluster.local/ns/x/sa/z]}}]}]}`}, ""},
		"metrics for somebody else":        {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY, DAEMON]}}]}, {` + of + `principals: [cluster.local/ns/x/sa/z]}}], to: [{operation: {ports: ["9090"]}}]}]}`}, ""},
		"any caller of the mesh":           {map[string]string{"a": `{rules: [{` + of + `principals: ["*"]}}]}]}`}, ""},
		"a namespace by its prefix":        {map[string]string{"a": `{rules: [{` + of + `principals: ["cluster.local/ns/istio-system/*"]}}]}]}`}, "a"},
		"an account by its suffix":         {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY, "*/sa/headstart-node"]}}]}]}`}, ""},
		"all but":                          {map[string]string{"a": `{rules: [{` + of + `notPrincipals: [DAEMON]}}]}]}`}, "a"},
		"the gateway's namespace":          {map[string]string{"a": `{rules: [{` + of + `namespaces: [istio-system]}}]}]}`}, "a"},
		"both namespaces":                  {map[string]string{"a": `{rules: [{` + of + `namespaces: [istio-system, headstart-system]}}]}]}`}, ""},
		"the gateway's account":            {map[string]string{"a": `{rules: [{` + of + `serviceAccounts: [istio-system/istio-ingressgateway-service-account]}}]}]}`}, "a"},
		"both accounts":                    {map[string]string{"a": `{rules: [{` + of + `serviceAccounts: [istio-system/istio-ingressgateway-service-account, headstart-system/headstart-node]}}]}]}`}, ""},
		"an account of the policy's own":   {map[string]string{"istio-system/a": `{rules: [{` + of + `serviceAccounts: [istio-ingressgateway-service-account]}}]}]}`}, "a"},
		"by a condition":                   {map[string]string{"a": `{rules: [{when: [{key: source.principal, values: [GATEWAY]}]}]}`}, "a"},
		"by a condition, and a claim":      {map[string]string{"a": `{rules: [{when: [{key: "request.auth.claims[iss]", values: [x]}]}]}`}, ""},
		"claims, and the gateway":          {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY], requestPrincipals: ["*"]}}]}]}`}, "a"},
		"denied all but the gateway":       {map[string]string{"a": `{action: DENY, rules: [{` + of + `notPrincipals: [GATEWAY]}}]}]}`}, "a"},
		"denied all but both":              {map[string]string{"a": `{action: DENY, rules: [{` + of + `notPrincipals: [GATEWAY, DAEMON]}}]}]}`}, ""},
		"denied to all, by path":           {map[string]string{"a": `{action: DENY, rules: [{to: [{operation: {paths: [/admin]}}]}]}`}, ""},
		"another's to decide, and written": {map[string]string{"a": `{action: CUSTOM, provider: {name: x}, rules: [{}]}`, "b": `{action: AUDIT, rules: [{` + of + `principals: [GATEWAY]}}]}]}`}, ""},
		"several":                          {map[string]string{"a": `{rules: [{` + of + `principals: [GATEWAY]}}]}]}`, "b": `{action: DENY, rules: [{` + of + `notNamespaces: [istio-system]}}]}]}`}, "a,b"},
	} {
		t.Run(what, func(t *testing.T) {
			k := healthy(t)
			delete(k.objects, "AuthorizationPolicy fire")
			for name, spec := range c.policies {
				k.add(t, authorizationPolicy(name, spec))
			}
			r := k.run(t, check.After(), "")["authorization"]
			var named []string
			for _, p := range r.Problems {
				named = append(named, p.Object[strings.LastIndex(p.Object, "/")+1:])
			}
			want := check.Pass
			if c.denies != "" {
				want = check.Warn
			}
			if r.Status != want || strings.Join(named, ",") != c.denies {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A policy without the daemon counts where there is a sidecar that sees the daemon's
// certificate, and a gateway that leaves requests to it.
func TestWhatPoliciesAreOf(t *testing.T) {
	set := func(object string, value any, path ...string) func(*testing.T, *cluster) {
		return func(t *testing.T, c *cluster) { c.change(t, object, value, path...) }
	}
	pods := []string{"spec", "template", "metadata"}
	namespace := []string{"metadata", "labels", "istio-injection"}
	for what, c := range map[string]struct {
		changes []func(*testing.T, *cluster)
		status  check.Status
		says    string
	}{
		"as it is":                 {nil, check.Warn, "1 of 1 with sidecars denies the node daemon"},
		"no injection":             {[]func(*testing.T, *cluster){set("Namespace default", nil, namespace...)}, check.Pass, "0 with sidecars"},
		"injection is off":         {[]func(*testing.T, *cluster){set("Namespace default", "disabled", namespace...)}, check.Pass, "0 with sidecars"},
		"of a revision":            {[]func(*testing.T, *cluster){set("Namespace default", map[string]any{"istio.io/rev": "canary"}, "metadata", "labels")}, check.Warn, "1 of 1"},
		"a pod's own":              {[]func(*testing.T, *cluster){set("Namespace default", nil, namespace...), set("Deployment fire", "true", append(pods, "labels", "sidecar.istio.io/inject")...)}, check.Warn, "1 of 1"},
		"a pod's revision":         {[]func(*testing.T, *cluster){set("Namespace default", nil, namespace...), set("Deployment fire", "canary", append(pods, "labels", "istio.io/rev")...)}, check.Warn, "1 of 1"},
		"a pod without":            {[]func(*testing.T, *cluster){set("Deployment fire", "false", append(pods, "labels", "sidecar.istio.io/inject")...)}, check.Pass, "0 with sidecars"},
		"a pod without, as it was": {[]func(*testing.T, *cluster){set("Deployment fire", map[string]any{"sidecar.istio.io/inject": "false"}, append(pods, "annotations")...)}, check.Pass, "0 with sidecars"},
		"by hand":                  {[]func(*testing.T, *cluster){set("Namespace default", nil, namespace...), set("Deployment fire", []any{map[string]any{"name": "istio-proxy"}}, "spec", "template", "spec", "containers")}, check.Warn, "1 of 1"},
		"not opted in":             {[]func(*testing.T, *cluster){set("Service fire", nil, "metadata", "annotations")}, check.Pass, "0 with sidecars"},
		"a daemon without a certificate": {[]func(*testing.T, *cluster){set("DaemonSet headstart-node", []any{map[string]any{"name": "node"}}, "spec", "template", "spec", "containers")},
			check.Skip, "switched off by the chart's istio.enabled or istio.mesh.enabled"},
		"another trust domain": {[]func(*testing.T, *cluster){set("DaemonSet headstart-node", []any{map[string]any{"name": "node", "args": []any{"--mesh-ca=x:1", "--mesh-trust-domain=example.org"}}}, "spec", "template", "spec", "containers")},
			check.Warn, "add the principal example.org/ns/headstart-system/sa/headstart-node"},
		"no daemon": {[]func(*testing.T, *cluster){func(_ *testing.T, c *cluster) { delete(c.objects, "DaemonSet headstart-node") }}, check.Skip, "there is no node daemon"},
		"no gateway": {[]func(*testing.T, *cluster){func(_ *testing.T, c *cluster) { delete(c.objects, "Pod gateway-1") }},
			check.Skip, "no gateway has the overlay"},
		"no Istio": {[]func(*testing.T, *cluster){func(_ *testing.T, c *cluster) { without(c, objects.Authorizations) }}, check.Skip, "Istio is not installed"},
		"hidden":   {[]func(*testing.T, *cluster){func(_ *testing.T, c *cluster) { c.forbidden = []string{"authorizationpolicies"} }}, check.Skip, "you may not look at AuthorizationPolicies"},
		"none":     {[]func(*testing.T, *cluster){func(_ *testing.T, c *cluster) { delete(c.objects, "AuthorizationPolicy fire") }}, check.Pass, "there is none"},
		"of Knative": {[]func(*testing.T, *cluster){func(t *testing.T, c *cluster) {
			c.change(t, "Namespace video", map[string]any{"istio-injection": "enabled"}, "metadata", "labels")
			c.add(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: scene-00001-deployment, namespace: video}, spec: {template: {metadata: {labels: {serving.knative.dev/service: scene}}}}}")
			c.add(t, authorizationPolicy("video/scene", "{rules: [{from: [{source: {principals: [GATEWAY]}}]}]}"))
		}}, check.Warn, "2 of 2 with sidecars deny|AuthorizationPolicy video/scene: it allows a gateway to call Knative Service video/scene"},
	} {
		t.Run(what, func(t *testing.T) {
			k := healthy(t)
			k.add(t, withoutDaemon)
			for _, change := range c.changes {
				change(t, k)
			}
			r := k.run(t, check.After(), "")["authorization"]
			text := r.Message
			for _, p := range r.Problems {
				text += "\n" + p.Object + ": " + p.Message
			}
			if r.Status != c.status {
				t.Errorf("%+v", r)
			}
			for says := range strings.SplitSeq(c.says, "|") {
				if !strings.Contains(text, says) {
					t.Errorf("it does not say %q:\n%s", says, text)
				}
			}
		})
	}
	// In one namespace, policies of the root namespace count too.
	k := healthy(t)
	k.add(t, authorizationPolicy("istio-system/all", "{rules: [{from: [{source: {principals: [GATEWAY]}}]}]}"))
	delete(k.objects, "AuthorizationPolicy fire")
	if r := k.run(t, check.After(), "default")["authorization"]; r.Status != check.Warn {
		t.Errorf("%+v", r)
	}
	if r := k.run(t, check.After(), "video")["authorization"]; r.Status != check.Pass {
		t.Errorf("%+v", r)
	}
}
