package local

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestALostNodesInstancesStayAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.Leave("edge")
		time.Sleep(nodeGrace - idleTick)
		w.wantPhase(in, platform.Ready)
		time.Sleep(2 * idleTick)
		w.wantPhase(in, "")
	})
}

// A function that may run on one node only waits for that while its daemon may be replaced, and keeps its instance.
func TestAFunctionsOnlyNodeIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		f := fireFunction()
		f.Node = "cloud"
		w.Deploy(f)
		refused := func(passing bool) {
			t.Helper()
			_, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge"})
			if r, is := errors.AsType[*platform.Refusal](err); !is || r.Reason != "NodeUnavailable" || r.Passing != passing {
				t.Errorf("%+v", err)
			}
		}
		refused(false)
		w.Join("cloud")
		in := w.activate(fire, "edge")
		w.Ready(in, address)
		w.Leave("cloud")
		refused(true)
		w.wantPhase(in, platform.Ready)
		time.Sleep(nodeGrace + idleTick)
		refused(false)
		w.wantPhase(in, "")
	})
}

func TestANodeThatRejoins(t *testing.T) {
	status := func(id string) *nodeapi.InstanceStatus {
		return &nodeapi.InstanceStatus{Id: id, Function: fire, Phase: nodeapi.Phase_PHASE_READY, Address: address}
	}
	cases := []struct {
		name  string
		says  func(in platform.Instance) []*nodeapi.InstanceStatus
		after time.Duration // of absence
		want  []platform.Phase
		stops int
	}{
		{"with the same", func(in platform.Instance) []*nodeapi.InstanceStatus {
			return []*nodeapi.InstanceStatus{status(in.ID)}
		}, time.Second, []platform.Phase{platform.Ready}, 0},
		{"with the same after it was given up", func(in platform.Instance) []*nodeapi.InstanceStatus {
			return []*nodeapi.InstanceStatus{status(in.ID)}
		}, time.Minute, []platform.Phase{platform.Ready}, 0},
		{"with fewer", func(platform.Instance) []*nodeapi.InstanceStatus { return nil }, time.Second, nil, 0},
		{"with one of an unknown function", func(in platform.Instance) []*nodeapi.InstanceStatus {
			other := status("other-1-ab")
			other.Function = "default/other"
			return []*nodeapi.InstanceStatus{status(in.ID), other}
		}, time.Second, []platform.Phase{platform.Ready}, 1},
		{"with a second one of the function", func(in platform.Instance) []*nodeapi.InstanceStatus {
			return []*nodeapi.InstanceStatus{status("default-fire-1-ab"), status(in.ID)}
		}, time.Second, []platform.Phase{platform.Ready, platform.Stopping}, 0},
		{"twice with the same", func(in platform.Instance) []*nodeapi.InstanceStatus {
			return []*nodeapi.InstanceStatus{status(in.ID), status(in.ID)}
		}, time.Second, []platform.Phase{platform.Ready}, 0},
		{"with one that failed meanwhile", func(in platform.Instance) []*nodeapi.InstanceStatus {
			s := status(in.ID)
			s.Phase, s.Reason = nodeapi.Phase_PHASE_FAILED, "FunctionExited"
			return []*nodeapi.InstanceStatus{s}
		}, time.Second, nil, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				in := w.hot("edge")
				w.stuck = true
				w.Leave("edge")
				time.Sleep(c.after)
				w.mu.Lock()
				w.connected["edge"] = true
				w.mu.Unlock()
				w.p.NodeJoined("edge", c.says(in))
				var phases []platform.Phase
				for _, i := range w.p.State().Instances {
					phases = append(phases, i.Phase)
				}
				slices.Sort(phases)
				if d := cmp.Diff(c.want, phases); d != "" {
					t.Errorf("phases: %s", d)
				}
				if got := w.stops(); len(got) != c.stops {
					t.Errorf("told to stop: %v", got)
				}
			})
		})
	}
}

// Whoever has begun to stop an instance ends that, even if its node was away meanwhile.
func TestAStopReachesANodeThatWasAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.Delete(fire)
		w.Leave("edge")
		time.Sleep(drainQuiet + 2*idleTick)
		if got := w.stops(); len(got) != 0 {
			t.Fatalf("told a node that is away: %v", got)
		}
		w.wantPhase(in, platform.Stopping)
		w.Join("edge")
		synctest.Wait()
		w.wantPhase(in, "")
	})
}

// An instance that several control planes have seen is drained once.
func TestRejoiningDoesNotCutADrainShort(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.p.Load("edge", map[string]int32{fire: 1})
		w.Delete(fire)
		w.Leave("edge")
		w.Join("edge")
		w.p.Load("edge", map[string]int32{fire: 1}) // a daemon says so when it registers
		time.Sleep(30 * time.Second)
		if got := w.stops(); len(got) != 0 {
			t.Fatalf("stopped with a request in hand: %v", got)
		}
		w.wantPhase(in, platform.Stopping)
	})
}

func TestWordsAboutAnothersInstancesCountForNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		w.Join("cloud")
		w.p.InstanceChanged("cloud", &nodeapi.InstanceStatus{Id: in.ID, Function: fire, Phase: nodeapi.Phase_PHASE_STOPPED})
		w.p.InstanceChanged("cloud", &nodeapi.InstanceStatus{Id: in.ID, Function: fire, Phase: nodeapi.Phase_PHASE_READY, Address: "10.9.9.9:1"})
		w.p.InstanceChanged("edge", &nodeapi.InstanceStatus{Id: "unknown", Function: fire, Phase: nodeapi.Phase_PHASE_READY, Address: address})
		w.p.NodeJoined("cloud", []*nodeapi.InstanceStatus{{Id: in.ID, Function: fire, Phase: nodeapi.Phase_PHASE_STOPPED}})
		if got := w.now(in); got != in {
			t.Errorf("it is %+v, was %+v", got, in)
		}
	})
}

// Gateways refuse all updates when one address is none.
func TestAnInstanceWithoutAnAddressIsWithdrawn(t *testing.T) {
	for _, address := range []string{"", "invalid AddrPort", "10.0.0.2", "10.0.0.2:0", "metadata:80"} {
		inBubble(t, func(t *testing.T, w *world) {
			w.Join("edge")
			w.Deploy(fireFunction())
			in := w.activate(fire, "edge")
			w.Ready(in, address)
			if got := w.now(in); got.Phase != platform.Stopping || got.Address.IsValid() {
				t.Errorf("%q: it is %+v", address, got)
			}
		})
	}
}

func TestAFailureIsAnEvent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		w.Deploy(fireFunction())
		w.Fail(w.activate(fire, "edge"))
		w.p.Event(fire, event.Event{Reason: "InputNotFound", Node: "edge"})
		w.p.Event("default/nothing", event.Event{Reason: "InputNotFound", Node: "edge"})
		got := w.events.Of(fire)
		if len(got) != 2 || got[0].Reason != "FunctionExited" || got[0].Node != "edge" || got[1].Reason != "InputNotFound" {
			t.Errorf("events are %+v", got)
		}
		if got := w.events.Of("default/nothing"); len(got) != 0 {
			t.Errorf("a function that is not deployed has events: %+v", got)
		}
	})
}

// A restarted control plane drains what the one before it had withdrawn: the nodes do
// not say so, but the ids are of an earlier generation.
func TestARestartDuringADrain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		old := w.hot("edge")
		w.p.Load("edge", map[string]int32{fire: 1})
		w.Deploy(withImage(fireFunction()))
		next := w.activate(fire, "edge")
		w.restart()
		w.Join("edge")
		w.wantPhase(old, platform.Stopping)
		w.wantPhase(next, platform.Starting)
		if in := w.activate(fire, "edge"); in.ID != next.ID {
			t.Errorf("bound to %+v", in)
		}
		time.Sleep(drainQuiet + idleTick)
		synctest.Wait()
		w.wantPhase(old, "")
	})
}

func TestAnAdoptedInstanceIsNotIdleAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		time.Sleep(20 * time.Second)
		w.restart()
		w.Join("edge")
		time.Sleep(fireFunction().Policy.ScaleToZero - idleTick)
		w.wantPhase(in, platform.Ready)
	})
}

// Its last lines come when it is gone, and from its own node only; a node is not believed to
// send few and printable ones.
func TestTheLastLinesOfAnInstance(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		in := w.hot("edge")
		say := func(node string, lines ...string) {
			w.p.InstanceChanged(node, &nodeapi.InstanceStatus{Id: in.ID, Function: fire, Phase: nodeapi.Phase_PHASE_STOPPED, Log: lines})
		}
		w.Exit(in)
		say("cloud", "of another")
		say("edge", append(slices.Repeat([]string{"early"}, 20), "no \x1b[2Jdatabase")...)
		got := w.events.Of(fire)
		if len(got) != 1 || got[0].Count != 1 || got[0].Instance != in.ID || len(got[0].Log) != 10 || got[0].Log[9] != "no database" {
			t.Errorf("events are %+v", got)
		}
	})
}
