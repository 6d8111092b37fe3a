package sandboxes_test

import (
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/wiretest"
)

// A newer shim says more than is known here, and gets what is known.
func TestANewerShim(t *testing.T) {
	r := newPodRig(t)
	asked := wiretest.Newer(&nodeapi.DescribeRequest{Sandbox: "a", Pod: pod("fire-x", "a")})
	if d, err := r.Describe(t.Context(), asked); err != nil || len(d.GetMounts()) != 2 {
		t.Errorf("%v, %v", d, err)
	}
	told := wiretest.Newer(&nodeapi.GoneRequest{Sandbox: "a", Pod: pod("fire-x", "a")})
	if _, err := r.Gone(t.Context(), told); err != nil {
		t.Error(err)
	}
	if left := names(t, r.dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A pod in a phase that only a newer control plane knows is not ready by that, but it is
// when it answers.
func TestAPhaseThatIsNotKnown(t *testing.T) {
	r := newPodRig(t)
	address, _ := listen(t, http.StatusOK)
	s := podStarting(address)
	s.Phase = 99
	r.has(wiretest.Newer(s))
	wantReady(t, <-r.wait(), at(address))
}
