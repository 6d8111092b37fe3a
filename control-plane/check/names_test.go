package check

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/identity"
	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/lease"
)

// The checks have the names once more, so that the CLI need not have these packages in it.
func TestNamesAreTheControlPlanes(t *testing.T) {
	for _, n := range []struct{ got, want string }{
		{generatedObjects, istio.Selector},
		{filterName, istio.PrefetchName},
		{gatewayVariable, "ISTIO_META_" + istio.MetadataKey},
		{controlPlaneName, identity.ServiceName},
		{controlPlaneName, lease.Name},
		{daemonName, identity.ServiceAccount},
		{authorityName, identity.ConfigMapName},
		{authorityKey, identity.ConfigMapKey},
		{causeForbidden, string(istio.Forbidden)},
		{causeMissing, string(istio.Missing)},
	} {
		if n.got != n.want {
			t.Errorf("the checks look for %s, which is %s", n.got, n.want)
		}
	}
}

// The chart notes what is off by the names that the checks look for.
func TestPartsAreTheCharts(t *testing.T) {
	for file, want := range map[string]string{
		"_helpers.tpl":      fmt.Sprintf("list %q %q %q %q }}", partAdmission, partInstaller, partIstio, partRuntimeClass),
		"controlplane.yaml": offAnnotation + `: {{ . }}`,
	} {
		text, err := os.ReadFile("../../manifests/charts/headstart/templates/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", file, want)
		}
	}
}
