package ingress_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// startsAnew binds each request to another instance, as a platform does whose last one has ended.
func startsAnew(to *nodeapi.Bound) func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
	var started atomic.Int32
	return func(context.Context, *nodeapi.Activate) (*nodeapi.Bound, error) {
		return &nodeapi.Bound{Instance: fmt.Sprint("fire-", started.Add(1)), Node: to.GetNode(), PeerAddress: to.GetPeerAddress(), Cold: to.GetCold()}, nil
	}
}

func failsLate(reason string) func(context.Context, string) (netip.AddrPort, error) {
	return func(context.Context, string) (netip.AddrPort, error) {
		return netip.AddrPort{}, problem.TooLate{
			Problem: problem.New(http.StatusBadGateway, problem.Reason(reason), "", "the program ended with code 1"),
		}
	}
}

// A function that fails by itself is started once more for a request, and not again and again;
// instances that go for another reason have as many successors as ever.
func TestAFunctionThatFailsIsStartedOnceMore(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testing.T, *rig)
		hot     bool // or not started for the request
		status  int
		title   string
		placed  int
	}{
		"it ends when it was just ready": {prepare: func(_ *testing.T, r *rig) { r.instances.ready = failsLate("FunctionExited") },
			status: http.StatusBadGateway, title: "FunctionExited", placed: 2},
		"it cannot be made": {prepare: func(_ *testing.T, r *rig) { r.instances.ready = failsLate("SandboxFailed") },
			status: http.StatusBadGateway, title: "SandboxFailed", placed: 2},
		"it takes no connections any more": {prepare: func(t *testing.T, r *rig) {
			nowhere := netip.MustParseAddrPort(closing(t))
			r.instances.ready = func(context.Context, string) (netip.AddrPort, error) { return nowhere, nil }
		}, status: http.StatusBadGateway, title: "FunctionFailed", placed: 2},
		"it ran already": {prepare: func(_ *testing.T, r *rig) { r.instances.ready = failsLate("FunctionExited") },
			hot: true, status: http.StatusBadGateway, title: "FunctionExited", placed: ingress.Placements},
		"it is gone": {prepare: func(_ *testing.T, r *rig) { r.instances.ready = failGone },
			status: http.StatusServiceUnavailable, title: "InstanceGone", placed: ingress.Placements},
		"it went with its containerd": {prepare: func(_ *testing.T, r *rig) { r.instances.ready = failsLate("InstanceGone") },
			status: http.StatusBadGateway, title: "InstanceGone", placed: ingress.Placements},
		"it is stopped": {prepare: func(_ *testing.T, r *rig) {
			r.instances.ready = func(context.Context, string) (netip.AddrPort, error) { return netip.AddrPort{}, stopped }
		}, status: http.StatusServiceUnavailable, title: "InstanceStopped", placed: ingress.Placements},
		"its daemon ends": {prepare: func(_ *testing.T, r *rig) { r.instances.ready = failsLate("DaemonStopping") },
			status: http.StatusBadGateway, title: "DaemonStopping", placed: ingress.Placements},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			c.prepare(t, r)
			r.cp.activate = startsAnew(&nodeapi.Bound{Node: "edge-1", Cold: !c.hot})
			wantProblem(t, r.do(t, request(t, "POST", withoutInput, newID(), "", nil)), c.status, c.title, "")
			if n := r.cp.activations(); n != c.placed {
				t.Errorf("%d instances were asked for, want %d", n, c.placed)
			}
		})
	}
}

// Another node's word of its instance counts as one's own.
func TestAFunctionThatFailsElsewhereIsStartedOnceMore(t *testing.T) {
	p := newPair(t, nil)
	p.target.instances.ready = failsLate("FunctionExited")
	to, _ := p.gateway.cp.activate(t.Context(), nil)
	p.gateway.cp.activate = startsAnew(to)
	wantProblem(t, p.gateway.do(t, request(t, "POST", withoutInput, newID(), "", nil)), http.StatusBadGateway, "FunctionExited", "")
	if n := p.gateway.cp.activations(); n != 2 {
		t.Errorf("%d instances were asked for", n)
	}
}

// One instance that the control plane names again and again is not another one that fails: that
// has not heard yet.
func TestAnInstanceFailsOnce(t *testing.T) {
	r := newRig(t, nil)
	r.instances.ready = failsLate("FunctionExited")
	wantProblem(t, r.do(t, request(t, "POST", withoutInput, newID(), "", nil)), http.StatusBadGateway, "FunctionExited", "")
	if n := r.cp.activations(); n != ingress.Placements {
		t.Errorf("it was placed %d times", n)
	}
}
