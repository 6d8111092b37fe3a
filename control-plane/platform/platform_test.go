package platform_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/platform"
)

func TestHotEndpoints(t *testing.T) {
	const fire = "default/fire"
	own, other := netip.MustParseAddrPort("10.1.0.2:8080"), netip.MustParseAddrPort("10.9.0.1:8012")
	relay := platform.Endpoint{Function: fire, Address: other, Relay: true}
	st := platform.State{Endpoints: []platform.Endpoint{relay}, Instances: []platform.Instance{
		{Function: fire, Node: "edge", Phase: platform.Starting, Address: own},
		{Function: fire, Node: "edge", Phase: platform.Ready, Address: own, MeshSNI: "fire"},
		{Function: fire, Node: "edge", Phase: platform.Ready},
		{Function: fire, Node: "edge", Phase: platform.Stopping, Address: own}}}
	want := []platform.Endpoint{{Function: fire, Node: "edge", Address: own, MeshTLS: true}, relay}
	if got := slices.Collect(st.Hot()); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for e := range st.Hot() {
		if e.Relay {
			t.Error("it went on")
		}
		break
	}
}

func TestAssignmentNames(t *testing.T) {
	name := platform.Function{Name: "default/fire", ServicePort: 80}.AssignmentName()
	if got := platform.AssignedTo(name); name != "default/fire:80" || got != "default/fire" {
		t.Errorf("%s is of %q", name, got)
	}
	local := platform.Function{Name: "default/fire"} // has no service, and no mesh
	if name, of := local.AssignmentName(), platform.AssignedTo(local.Name); name != "" || of != local.Name {
		t.Errorf("%q, and %s is of %q", name, local.Name, of)
	}
	for _, other := range []string{"", "fire", "fire:80", "default/fire:http", "default/fire:70000"} {
		if got := platform.AssignedTo(other); got != "" {
			t.Errorf("%q is of %q", other, got)
		}
	}
}
