package local

import (
	"slices"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A function whose instances take one request at a time has one more when a node finds all of its own at work, until it has as many as
// it may; all of them go when it is idle. Others have one. Gateways send them nothing: daemons do.
func TestMoreInstances(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		f := fireFunction()
		f.OneAtATime, f.MaxInstances = true, 3
		w.Deploy(f)
		more := func() platform.Instance {
			t.Helper()
			in, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge", More: true})
			if err != nil {
				t.Fatal(err)
			}
			w.Ready(in, "10.0.0.1:8080")
			return in
		}
		ids := map[string]bool{}
		for range 5 {
			ids[more().ID] = true
		}
		if len(ids) != 3 {
			t.Errorf("%d instances, want 3", len(ids))
		}
		if in := w.activate(fire, "edge"); !ids[in.ID] {
			t.Errorf("a request without the wish for more is bound to %s", in.ID)
		}
		for e := range w.p.State().Hot() {
			t.Errorf("gateways send requests to %v", e)
		}
		time.Sleep(f.Policy.ScaleToZero + time.Minute)
		if n := len(w.p.State().Instances); n != 0 {
			t.Errorf("%d instances are left when it is idle", n)
		}
		withdrawn := 0
		for _, m := range w.sent {
			if m.GetWithdraw() != nil {
				withdrawn++
			}
		}
		if withdrawn != 3 {
			t.Errorf("the node hears of %d that are withdrawn", withdrawn)
		}
		f.OneAtATime = false
		w.Deploy(f)
		if a, b := more(), more(); a.ID != b.ID {
			t.Error("a function has two instances that take requests at the same time")
		}
		if m := Message(f); m.GetOneAtATime() || !m.GetOneInstance() {
			t.Errorf("nodes are told %v", m)
		}
	})
}

// A node that was away when an instance was withdrawn hears of it when it is back: it would go on giving it requests.
func TestANodeIsBackAfterAWithdrawal(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.mu.Lock()
		w.connected["edge"] = false
		w.mu.Unlock()
		w.p.NodeLeft("edge")
		f := fireFunction()
		f.Image = "another"
		w.Deploy(f)
		w.Join("edge")
		withdrawn := slices.ContainsFunc(w.sent, func(m *nodeapi.ControlMessage) bool { return m.GetWithdraw().GetId() == in.ID })
		if !withdrawn {
			t.Errorf("the node was told %v", w.sent)
		}
	})
}

// A control plane that is started again takes over as many instances as the function may have.
func TestMoreInstancesAfterARestart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		f := fireFunction()
		f.OneAtATime, f.MaxInstances = true, 2
		w.Deploy(f)
		for range 2 {
			in, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge", More: true})
			if err != nil {
				t.Fatal(err)
			}
			w.Ready(in, "10.0.0.1:8080")
		}
		w.restart()
		w.Join("edge")
		ready := 0
		for _, in := range w.p.State().Instances {
			if in.Phase != platform.Stopping {
				ready++
			}
		}
		if ready != 2 || len(w.stops()) != 0 {
			t.Errorf("%d instances, told to stop %s", ready, w.stops())
		}
		w.p.InstanceChanged("edge", &nodeapi.InstanceStatus{Id: "unknown", Phase: nodeapi.Phase_PHASE_READY}) // changes nothing
	})
}
