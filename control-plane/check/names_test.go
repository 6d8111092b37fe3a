package check

import (
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/identity"
	"github.com/headstart-mesh/headstart/control-plane/istio"
)

// The checks have the names once more, so that the CLI need not have these packages in it.
func TestNamesAreTheControlPlanes(t *testing.T) {
	for _, n := range []struct{ got, want string }{
		{generatedObjects, istio.Selector},
		{filterName, istio.PrefetchName},
		{gatewayVariable, "ISTIO_META_" + istio.MetadataKey},
		{controlPlaneName, identity.ServiceName},
		{daemonName, identity.ServiceAccount},
		{authorityName, identity.ConfigMapName},
		{authorityKey, identity.ConfigMapKey},
	} {
		if n.got != n.want {
			t.Errorf("the checks look for %s, which is %s", n.got, n.want)
		}
	}
}
