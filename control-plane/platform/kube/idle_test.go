package kube_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
)

const (
	fire    = "default/fire"
	address = "10.1.0.2:8080"
	// window is fire's idle window, drained how long a withdrawn workload is watched, and
	// moment more than it takes to hear of something.
	window  = 30 * time.Second
	drained = 4 * time.Second
	moment  = 500 * time.Millisecond
	// graceful is how long after a start nothing counts as idle.
	graceful = 45 * time.Second
)

// hot has a ready instance of fire on node edge, idle from now on.
func (w *world) hot() platform.Instance {
	w.t.Helper()
	<-w.p.Recovered()
	w.Join("edge")
	w.Deploy(platformtest.Fire())
	w.settle()
	time.Sleep(graceful)
	in := w.activate()
	w.Ready(in, address)
	w.settle()
	return in
}

// settle lets everybody hear of what has happened.
func (w *world) settle() { time.Sleep(moment); synctest.Wait() }

func (w *world) activate() platform.Instance {
	w.t.Helper()
	in, err := w.p.Activate(w.t.Context(), platform.Request{Function: fire, Node: "edge"})
	if err != nil {
		w.t.Fatal(err)
	}
	return in
}

// wantPhases are those of all instances, by id.
func (w *world) wantPhases(want ...platform.Phase) {
	w.t.Helper()
	var got []platform.Phase
	for _, in := range w.p.State().Instances {
		got = append(got, in.Phase)
	}
	if d := cmp.Diff(want, got); d != "" {
		w.t.Errorf("the instances' phases: -want +got\n%s", d)
	}
}

func wantScales(t *testing.T, a *fakeAPI, want ...int32) {
	t.Helper()
	if d := cmp.Diff(want, a.scales()); d != "" {
		t.Errorf("scaled to: -want +got\n%s", d)
	}
}

// Of two control planes one scales to zero, and both scale up.
func TestOnlyWhoIsInChargeScalesToZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		var charge atomic.Bool
		w.end()
		w.inCharge = charge.Load
		w.start()
		w.hot()
		wantScales(t, a, 1)
		time.Sleep(2 * window)
		w.wantPhases(platform.Ready)
		// Idle windows begin when it is its turn: until then nodes may have told another.
		charge.Store(true)
		time.Sleep(graceful + window - moment)
		w.wantPhases(platform.Ready)
		time.Sleep(2 * moment)
		w.wantPhases(platform.Stopping)
		charge.Store(false)
		w.settle()
		w.wantPhases(platform.Ready)
		time.Sleep(2 * window)
		wantScales(t, a, 1)
	})
}

// A process that stood still does not know what nodes have sent requests to meanwhile, by another
// control plane's word.
func TestWhoStoodStillTakesBackWhatItHasWithdrawn(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		time.Sleep(window + moment)
		w.wantPhases(platform.Stopping)
		w.p.StoodStill(2 * time.Second)
		w.settle()
		w.wantPhases(platform.Ready)
		time.Sleep(window - 2*moment)
		w.wantPhases(platform.Ready)
		time.Sleep(drained + 3*moment)
		wantScales(t, a, 1, 0)
	})
}

func TestAnIdleFunctionIsWithdrawnThenScaledToZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		time.Sleep(window - 2*moment)
		w.wantPhases(platform.Ready)
		time.Sleep(3 * moment)
		w.wantPhases(platform.Stopping)
		wantScales(t, a, 1)
		time.Sleep(drained + moment)
		w.wantPhases()
		wantScales(t, a, 1, 0)
		w.activate() // and from zero again
		wantScales(t, a, 1, 0, 1)
	})
}

func TestABusyFunctionIsLeftRunning(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.p.Load("edge", map[string]int32{fire: 1})
		time.Sleep(3 * window)
		w.wantPhases(platform.Ready)
		w.p.Load("edge", nil) // its window begins now
		time.Sleep(window - moment)
		w.wantPhases(platform.Ready)
		time.Sleep(2 * moment)
		w.wantPhases(platform.Stopping)
		// A request that was on its way to it, which the gateway reports.
		w.p.Load("edge", map[string]int32{fire: 1})
		time.Sleep(moment)
		w.wantPhases(platform.Ready)
		wantScales(t, a, 1)
	})
}

func TestARequestTakesWithdrawnInstancesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		before := w.hot()
		time.Sleep(window + moment)
		w.wantPhases(platform.Stopping)
		if in := w.activate(); in.ID != before.ID || in.Phase != platform.Ready {
			t.Errorf("bound to %+v", in)
		}
		w.wantPhases(platform.Ready)
		time.Sleep(window - moment)
		w.wantPhases(platform.Ready)
		wantScales(t, a, 1)
	})
}

func TestIdleWindowsDoNotRunWhileADaemonIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.p.NodeJoined("edge")
		w.hot()
		time.Sleep(window / 2)
		w.p.NodeLeft("edge")
		time.Sleep(window)
		w.wantPhases(platform.Ready)
		w.p.NodeJoined("edge")
		time.Sleep(window - moment)
		w.wantPhases(platform.Ready)
		time.Sleep(2*moment + drained)
		wantScales(t, a, 1, 0)
	})
}

func TestTheIdleWindowBeginsAnewWithTheControlPlane(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		time.Sleep(window - moment)
		w.end()
		w.start()
		time.Sleep(window + graceful - moment)
		w.wantPhases(platform.Ready)
		time.Sleep(2 * moment)
		w.wantPhases(platform.Stopping)
	})
}

// A node connects, and says what it has in hand, before the cluster has told of functions.
func TestARestartedControlPlaneHearsOfRequestsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.end()
		a.fault("*", errAway)
		w.start()
		w.p.Load("edge", map[string]int32{fire: 1})
		a.fault("*", nil)
		<-w.p.Recovered()
		time.Sleep(3 * window)
		w.wantPhases(platform.Ready)
	})
}

// hpa is an autoscaler of fire's between min and many replicas.
func (w *world) hpa(min int32) {
	w.t.Helper()
	_, err := w.clients.Kubernetes.AutoscalingV2().HorizontalPodAutoscalers(namespace).Create(w.t.Context(),
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fire"},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &min,
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "fire"}}}, metav1.CreateOptions{})
	w.must(err)
}

// Between one and more it is the autoscaler's; between zero and one ours.
func TestAnAutoscalerRestsAtZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.hpa(2)
		w.scaleTo(3) // by the autoscaler
		w.settle()
		time.Sleep(window + drained)
		w.wantPhases()
		wantScales(t, a, 1, 0)
		w.activate()
		wantScales(t, a, 1, 0, 2) // its least; the rest is for it to say
		if kept := w.kept(); len(kept) > 0 {
			t.Errorf("kept is %v", kept)
		}
		if got := w.p.Problems(); len(got) != 0 {
			t.Errorf("problems: %+v", got)
		}
		// Its replicas are on a node that is lost: how many there are to be is for it to say.
		w.Leave("edge")
		w.settle()
		if _, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge"}); err == nil {
			t.Error("bound to a pod on a lost node")
		}
		wantScales(t, a, 1, 0, 2)
	})
}

func TestAnAutoscalerThatScalesToZeroIsLeftToIt(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.hpa(0)
		time.Sleep(3 * window)
		w.wantPhases(platform.Ready)
		if err := w.p.ScaleToZero(t.Context(), fire); err == nil {
			t.Error("an operator may scale what another scales to zero")
		}
		w.scaleTo(0)
		w.settle()
		if got := w.p.Withdrawn(); len(got) > 0 { // Headstart has not done that
			t.Error(got)
		}
		time.Sleep(window) // until its pods are gone
		w.activate()       // it looks too rarely to wake for a request
		wantScales(t, a, 1, 1)
	})
}

func TestWithoutTheAnnotationAnAutoscalersWorkloadStaysAtZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.hpa(1)
		s := serviceOf(namespace, "fire", platformtest.Fire())
		delete(s.Annotations, "headstart.dev/scale-to-zero")
		w.applyService(s)
		w.scaleTo(0)
		w.settle()
		w.wantRefused(503, "ScaledByAnother", "HorizontalPodAutoscaler fire scales Deployment fire")
		wantScales(t, a, 1)
	})
}

// kept is what the cluster has noted of workloads' replicas.
func (w *world) kept() map[string]string {
	w.t.Helper()
	c, err := w.clients.Kubernetes.CoreV1().ConfigMaps(system).Get(w.t.Context(), kube.ReplicasName, metav1.GetOptions{})
	w.must(err)
	return c.Data
}

func TestAWorkloadComesBackWithItsReplicas(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		first := w.hot()
		w.scaleTo(3)
		w.settle()
		w.wantPhases(platform.Ready, platform.Starting, platform.Starting)
		if in := w.activate(); in.ID != first.ID {
			t.Errorf("bound to %s, which starts, and not to %s", in.ID, first.ID)
		}
		time.Sleep(window + moment)
		w.wantPhases(platform.Stopping, platform.Stopping, platform.Stopping)
		if d := cmp.Diff(map[string]int{fire: 0}, w.p.Withdrawn()); d != "" {
			t.Errorf("withdrawn: -want +got\n%s", d)
		}
		time.Sleep(drained)
		w.wantPhases()
		if d := cmp.Diff(map[string]int{fire: 3}, w.p.Withdrawn()); d != "" {
			t.Errorf("withdrawn: -want +got\n%s", d)
		}
		if d := cmp.Diff(map[string]string{"uid-of-fire": "3 Deployment default/fire"}, w.kept()); d != "" {
			t.Errorf("kept: -want +got\n%s", d)
		}
		// Another control plane knows it from the cluster.
		w.end()
		w.start()
		<-w.p.Recovered()
		w.activate()
		w.settle()
		w.wantPhases(platform.Starting, platform.Starting, platform.Starting)
		wantScales(t, a, 1, 0, 3)
		// The one that is ready gets the requests, while one of the others is lost.
		for _, in := range w.p.State().Instances[:2] {
			w.Ready(in, address)
		}
		w.settle()
		for range 4 {
			if in := w.activate(); in.Phase != platform.Ready {
				t.Errorf("bound to %+v", in)
			}
		}
		// With one replica nothing is to be remembered, and nothing of workloads that are gone.
		w.scaleTo(1)
		w.settle()
		time.Sleep(graceful + window + drained)
		wantScales(t, a, 1, 0, 3, 0)
		if d := cmp.Diff(map[string]string{}, w.kept(), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("kept: -want +got\n%s", d)
		}
	})
}

// What is added beside pods on a lost node does not stay.
func TestReplicasBesideLostOnesAreNotTheWorkloads(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.Join("fog")
		w.Leave("edge")
		w.settle()
		w.Ready(w.activate(), address)
		wantScales(t, a, 1, 2)
		w.Join("edge")
		time.Sleep(graceful + window + drained)
		wantScales(t, a, 1, 2, 0)
		w.activate()
		wantScales(t, a, 1, 2, 0, 1)
		w.settle()
		if kept := w.kept(); len(kept) > 0 {
			t.Errorf("kept is %v", kept)
		}
	})
}

// Its number of replicas would be lost.
func TestAWorkloadStaysUpWhoseReplicasCannotBeKept(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.scaleTo(3)
		a.fault("patch configmaps", forbidden("configmaps"))
		time.Sleep(window + drained + 2*moment)
		w.wantPhases(platform.Ready, platform.Starting, platform.Starting)
		wantScales(t, a, 1)
		if events := w.events.Of(fire); len(events) == 0 || events[0].Reason != "ScaleToZeroFailed" || !strings.Contains(events[0].Message, "ConfigMap headstart-system/headstart-replicas") {
			t.Errorf("events: %+v", events)
		}
	})
}

func TestWithoutTheAnnotationNothingIsScaled(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		s := serviceOf(namespace, "fire", platformtest.Fire())
		delete(s.Annotations, "headstart.dev/scale-to-zero")
		w.applyService(s)
		time.Sleep(3 * window)
		w.wantPhases(platform.Ready)
		w.scaleTo(0)
		w.settle()
		w.wantRefused(503, "NoInstance", "headstart.dev/scale-to-zero")
		wantScales(t, a, 1)
	})
}

func TestAWorkloadThatMayNotBeStoppedIsUsedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		a.fault("update deployments/scale.apps", forbidden("deployments/scale"))
		time.Sleep(window + drained + 2*moment)
		w.wantPhases(platform.Ready)
		if events := w.events.Of(fire); len(events) == 0 || events[0].Reason != "ScaleToZeroFailed" {
			t.Errorf("events: %+v", events)
		}
	})
}

func TestAWorkloadIsIdleWithTheLastOfItsFunctions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		twin := serviceOf(namespace, "twin", platformtest.Fire())
		twin.Spec.Selector = map[string]string{"app": "fire"}
		delete(twin.Annotations, "headstart.dev/scale-to-zero")
		w.applyService(twin)
		w.p.Load("edge", map[string]int32{"default/twin": 1})
		time.Sleep(3 * window)
		w.wantPhases(platform.Ready, platform.Ready) // the pod, as either's
		w.p.Load("edge", nil)
		time.Sleep(window + drained + 2*moment)
		w.wantPhases()
		if _, err := w.p.Activate(t.Context(), platform.Request{Function: "default/twin", Node: "edge"}); err != nil {
			t.Error(err)
		}
		wantScales(t, a, 1, 0, 1)
	})
}

// Nobody hears of an observed function's requests, so what it shares with another one is not withdrawn.
func TestAWorkloadOfAnObservedFunctionStaysUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		twin := serviceOf(namespace, "twin", platformtest.Fire())
		twin.Spec.Selector = map[string]string{"app": "fire"}
		twin.Annotations = map[string]string{"headstart.dev/mode": "observe", "headstart.dev/input": "s3://videos/{header.x-key}"}
		w.applyService(twin)
		time.Sleep(3*window + drained)
		wantScales(t, a, 1)
		twin.Annotations["headstart.dev/mode"] = "active"
		w.applyService(twin)
		time.Sleep(window + drained + 2*moment)
		wantScales(t, a, 1, 0)
	})
}

func TestAnOperatorScalesToZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.hot()
		w.p.Load("edge", map[string]int32{fire: 1})
		if err := w.p.ScaleToZero(t.Context(), fire); err != nil {
			t.Fatal(err)
		}
		time.Sleep(window)
		w.wantPhases(platform.Stopping) // until the request is over
		w.p.Load("edge", nil)
		time.Sleep(drained + 2*moment)
		w.wantPhases()
		wantScales(t, a, 1, 0)
	})
}
