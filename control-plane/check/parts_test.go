package check_test

import (
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/check"
)

// What the operator has switched off is not missed: it is skipped, with the value that says
// so. What is there in spite of it is looked at as ever.
func TestWhatIsSwitchedOff(t *testing.T) {
	gone := func(objects ...string) func(*testing.T, *cluster) {
		return func(_ *testing.T, c *cluster) {
			for _, o := range objects {
				delete(c.objects, o)
			}
		}
	}
	policies := gone("ValidatingAdmissionPolicy headstart-services", "ValidatingAdmissionPolicyBinding headstart-services",
		"ValidatingAdmissionPolicy headstart-knative-services", "ValidatingAdmissionPolicyBinding headstart-knative-services",
		"ValidatingAdmissionPolicy headstart-pods", "ValidatingAdmissionPolicyBinding headstart-pods",
		"ValidatingAdmissionPolicy headstart-routes", "ValidatingAdmissionPolicyBinding headstart-routes",
		"ValidatingAdmissionPolicy headstart-addresses", "ValidatingAdmissionPolicyBinding headstart-addresses")
	for what, c := range map[string]struct {
		part, id string
		change   func(*testing.T, *cluster)
		off      check.Status // with the part off; without, it fails
	}{
		"RuntimeClass":      {"runtimeClass", "runtime-class", gone("RuntimeClass headstart"), check.Skip},
		"another handler":   {"runtimeClass", "runtime-class", func(t *testing.T, c *cluster) { c.change(t, "RuntimeClass headstart", "runc", "handler") }, check.Fail},
		"policies":          {"admission", "admission", policies, check.Skip},
		"a policy of three": {"admission", "admission", gone("ValidatingAdmissionPolicy headstart-services"), check.Fail},
		"labels":            {"installer", "nodes", func(t *testing.T, c *cluster) { c.change(t, "Node node-2", nil, "metadata", "labels") }, check.Skip},
		"gateways":          {"istio", "gateways", gone("Pod gateway-1"), check.Skip},
		"a gateway in part": {"istio", "gateways", func(t *testing.T, c *cluster) { gateway(t, c, "mount") }, check.Fail},
		"filter":            {"istio", "prefetch-filter", gone("TrafficExtension headstart-prefetch"), check.Skip},
		"EnvoyFilter":       {"istio", "envoy-filters", gone("EnvoyFilter headstart-gateways", "EnvoyFilter headstart-keys"), check.Skip},
		"no rights in Istio": {"istio", "functions", func(_ *testing.T, c *cluster) {
			c.status.Mesh.Problems = []admin.MeshProblem{{Cause: "Forbidden"}, {Cause: "Missing"}}
		}, check.Pass},
		"refused by Istio": {"istio", "functions", func(_ *testing.T, c *cluster) {
			c.status.Mesh.Problems = []admin.MeshProblem{{Cause: "Rejected"}}
		}, check.Fail},
	} {
		t.Run(what, func(t *testing.T) {
			for annotation, want := range map[string]check.Status{"": check.Fail, "other": check.Fail, c.part: c.off, "other," + c.part: c.off} {
				k := healthy(t)
				c.change(t, k)
				if annotation != "" {
					k.change(t, "Deployment headstart-controlplane", map[string]any{"headstart.dev/off": annotation}, "metadata", "annotations")
				}
				r := k.run(t, check.After(), "")[c.id]
				if r.Status != want {
					t.Errorf("with %q off: %+v", annotation, r)
				}
				if want == check.Skip && (!strings.Contains(r.Message, "switched off by the chart's "+c.part+".enabled") || r.Hint != "" || len(r.Problems) > 0) {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}
