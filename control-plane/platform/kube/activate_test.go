package kube_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// errAway is what client-go says of an API server that is not there.
var errAway = &net.OpError{Op: "dial", Err: errors.New("connection refused")}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no rule allows it"))
}

func (w *world) refusal() *platform.Refusal {
	w.t.Helper()
	in, err := w.p.Activate(w.t.Context(), platform.Request{Function: fire, Node: "edge"})
	r, ok := errors.AsType[*platform.Refusal](err)
	if !ok {
		w.t.Fatalf("bound to %+v, error %v; want a refusal", in, err)
	}
	return r
}

func (w *world) wantRefused(status int, reason, says string) {
	w.t.Helper()
	if r := w.refusal(); r.Status != status || r.Reason != reason || !strings.Contains(r.Message, says) {
		w.t.Errorf("refused with %d %v; want %d %s that says %q", r.Status, r, status, reason, says)
	}
}

// cold has fire deployed, with no instance, and one node.
func (w *world) cold() {
	w.t.Helper()
	<-w.p.Recovered()
	w.Join("edge")
	w.Deploy(platformtest.Fire())
	w.settle()
}

// scaleTo is somebody else who scales fire.
func (w *world) scaleTo(n int32) {
	w.t.Helper()
	d := deploymentOf(namespace, "fire", platformtest.Fire())
	d.Spec.Replicas = &n
	w.apply(d)
}

// Two control planes that are asked at the same time have one pod made, and both bind to it.
func TestTwoControlPlanesScaleUpOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		both := []*platformOf{{w.p, w.end}}
		defer both[0].end()
		w.start() // beside the first one
		<-w.p.Recovered()
		w.p.NodeJoined("edge")
		both = append(both, &platformOf{w.p, w.end})
		bound := make(chan string, len(both))
		for _, p := range both {
			go func() {
				in, err := p.Activate(t.Context(), platform.Request{Function: fire, Node: "edge"})
				if err != nil {
					t.Error(err)
				}
				bound <- in.ID
			}()
		}
		if one, other := <-bound, <-bound; one != other || one == "" {
			t.Errorf("bound to %q and %q", one, other)
		}
		wantScales(t, a, 1)
	})
}

// platformOf is one control plane's, and its end.
type platformOf struct {
	*kube.Platform
	end func()
}

// makesPods says whether fire's controller makes pods.
func (w *world) makesPods(does bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed["fire"] = time.Time{}
	if !does {
		w.failed["fire"] = time.Now().Add(time.Hour)
	}
}

func TestManyRequestsAreOneScaleUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { w.activate() })
		}
		all.Wait()
		wantScales(t, a, 1)
		w.wantPhases(platform.Starting)
	})
}

func TestWhoGoesAwayDoesNotEndTheScaleUp(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		w.makesPods(false)
		gone, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := w.p.Activate(gone, platform.Request{Function: fire, Node: "edge"}); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who went away got %v", err)
			}
		})
		all.Go(func() { w.activate() })
		time.Sleep(moment)
		cancel()
		time.Sleep(moment)
		w.makesPods(true)
		all.Wait()
		wantScales(t, a, 1)
	})
}

func TestScaleUpIsForbidden(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		a.fault("update deployments/scale.apps", forbidden("deployments/scale"))
		w.wantRefused(503, "ScaleUpForbidden", "allow its service account the verbs get and update on deployments/scale")
		a.fault("update deployments/scale.apps", nil)
		w.activate() // as soon as it is allowed
	})
}

// A control plane whose pod has been deleted has no valid token any more. It refuses nobody for that:
// who waits asks another one when this one is killed.
func TestAControlPlaneWithoutAToken(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		a.fault("update deployments/scale.apps", apierrors.NewUnauthorized("Unauthorized"))
		time.AfterFunc(2*time.Second, func() { a.fault("update deployments/scale.apps", nil) })
		w.activate()
		other := platformtest.Fire()
		other.Name = "default/other"
		w.Deploy(other)
		w.settle()
		a.fault("update deployments/scale.apps", apierrors.NewUnauthorized("Unauthorized"))
		began := time.Now()
		_, err := w.p.Activate(t.Context(), platform.Request{Function: "default/other", Node: "edge"})
		if r, ok := errors.AsType[*platform.Refusal](err); !ok || r.Reason != "PlatformUnavailable" || time.Since(began) < 4*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// What is known goes on while the API server is away, what is new fails and says why, and
// all is well again when it is back.
func TestTheAPIServerIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		in := w.hot()
		other := platformtest.Fire()
		other.Name = "default/other"
		w.Deploy(other)
		w.settle()
		a.fault("*", errAway)
		if again := w.activate(); again.ID != in.ID || again.Phase != platform.Ready {
			t.Errorf("bound to %+v", again)
		}
		began := time.Now()
		_, err := w.p.Activate(t.Context(), platform.Request{Function: "default/other", Node: "edge"})
		if r, ok := errors.AsType[*platform.Refusal](err); !ok || r.Reason != "PlatformUnavailable" || r.Status != 503 {
			t.Errorf("scale-up: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		w.wantPhases(platform.Ready)
		a.fault("*", nil)
		if _, err := w.p.Activate(t.Context(), platform.Request{Function: "default/other", Node: "edge"}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestTheAPIServerIsAwayFromTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		w.end()
		a.fault("*", errAway)
		w.start()
		w.wantRefused(503, "PlatformUnavailable", "cannot list pods: ")
		a.fault("*", nil)
		<-w.p.Recovered()
		w.activate()
		if err := w.p.Healthy(); err != nil {
			t.Error(err)
		}
	})
}

func TestPodsThatDoNotComeUp(t *testing.T) {
	cases := map[string]struct {
		waiting      corev1.ContainerStateWaiting
		reason, says string
	}{
		"no image":   {corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}, "ImageUnavailable", "container function: ImagePullBackOff: not found"},
		"crash loop": {corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 10s"}, "FunctionExited", "back-off 10s"},
		"no secret":  {corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "x" not found`}, "SandboxFailed", `secret "x" not found`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
				w.cold()
				in := w.activate()
				w.status(in, func(s *corev1.PodStatus) {
					s.ContainerStatuses = []corev1.ContainerStatus{{Name: "function", State: corev1.ContainerState{Waiting: &c.waiting}}}
				})
				w.settle()
				w.wantRefused(502, c.reason, c.says)
				// Who was bound before hears it from the node.
				got := w.p.InstancesOf("edge").GetInstances()
				if len(got) != 1 || got[0].GetPhase() != nodeapi.Phase_PHASE_FAILED || got[0].GetReason() != c.reason {
					t.Errorf("the node is told %v", got)
				}
			})
		})
	}
}

// A container that could not be made because containerd was being started again is made again by
// the kubelet at once: who waits for it goes on.
func TestTheRuntimeIsStartedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		in := w.activate()
		for _, reason := range []string{"RunContainerError", "CreateContainerError"} {
			w.status(in, func(s *corev1.PodStatus) {
				s.ContainerStatuses = []corev1.ContainerStatus{{Name: "function", State: corev1.ContainerState{
					Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "error reading from server: EOF"}}}}
			})
			w.settle()
			if got := w.p.InstancesOf("edge").GetInstances(); len(got) != 1 || got[0].GetPhase() != nodeapi.Phase_PHASE_STARTING {
				t.Errorf("%s: the node is told %v", reason, got)
			}
		}
		if again := w.activate(); again != in {
			t.Errorf("another instance is made: %v", again)
		}
	})
}

func TestTheClusterRefusesThePod(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		d := deploymentOf(namespace, "fire", platformtest.Fire())
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "exceeded quota"}}
		one := int32(1)
		d.Spec.Replicas = &one
		w.makesPods(false)
		w.apply(d)
		w.settle()
		w.wantRefused(503, "PodRefused", "exceeded quota")
	})
}

func TestNobodyMakesAPod(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		w.makesPods(false)
		w.wantRefused(504, "ActivationTimeout", "the cluster made no pod within 14s")
	})
}

func TestAServiceWithoutAWorkload(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		<-w.p.Recovered()
		w.applyService(serviceOf(namespace, "fire", platformtest.Fire()))
		w.settle()
		w.wantRefused(503, "NoInstance", "no Deployment or StatefulSet")
	})
}

func TestWhichInstance(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		w.Join("fog")
		w.Join("cloud")
		w.scaleTo(3)
		w.settle()
		instances := w.p.State().Instances
		if len(instances) != 3 {
			t.Fatalf("instances: %+v", instances)
		}
		// The world schedules all to one node; the pods are moved by hand.
		nodes := []string{"cloud", "edge", "fog"}
		for i, in := range instances {
			if err := a.bind(t.Context(), strings.Split(in.ID, "_")[1], nodes[i]); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		on := func(requesting string) string {
			in, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: requesting})
			if err != nil {
				t.Fatal(err)
			}
			return in.Node
		}
		if got := on("fog"); got != "fog" {
			t.Errorf("starting ones: bound to %s", got)
		}
		w.Ready(instances[0], address)
		w.settle()
		if got := on("fog"); got != "cloud" {
			t.Errorf("one is ready: bound to %s", got)
		}
		w.Ready(instances[2], "10.1.0.3:8080")
		w.settle()
		if got := on("fog"); got != "fog" {
			t.Errorf("the requesting node's is ready: bound to %s", got)
		}
		w.p.NodeJoined("cloud")
		if got := on("edge"); got != "cloud" {
			t.Errorf("a daemon is connected: bound to %s", got)
		}
		w.p.NodeLeft("cloud")
		if first, second := on("edge"), on("edge"); first == second {
			t.Errorf("equals do not take turns: twice %s", first)
		}
		w.node("fog", corev1.ConditionFalse)
		w.settle()
		if got := on("fog"); got != "cloud" {
			t.Errorf("the node is not ready: bound to %s", got)
		}
		w.node("cloud", corev1.ConditionFalse)
		w.settle()
		// That of edge is starting still; the cluster goes on using the others.
		if got := on("edge"); got == "edge" {
			t.Errorf("no ready node has a ready instance: bound to %s", got)
		}
	})
}

// An API server that was away comes back with all nodes unheard of, and leaves all pods as
// they are.
func TestAllNodesAreUnheardOf(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
		w.cold()
		w.p.NodeJoined("edge")
		starting := w.activate()
		w.node("edge", corev1.ConditionUnknown)
		w.settle()
		if in := w.activate(); in.ID != starting.ID {
			t.Errorf("a request waits for %+v, not for the instance that starts on a node whose daemon is connected", in)
		}
		w.Ready(starting, "10.1.0.2:8080")
		w.settle()
		w.p.NodeLeft("edge")
		w.settle()
		w.wantPhases(platform.Ready)
		if in := w.activate(); in.ID != starting.ID || in.Phase != platform.Ready {
			t.Errorf("a request goes to %+v, not to the instance that the cluster calls ready", in)
		}
	})
}

// Whose daemon is away too is lost, and found again with either.
func TestANodeIsLostWithItsDaemon(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
		w.cold()
		w.p.NodeJoined("edge")
		w.activate()
		w.node("edge", corev1.ConditionUnknown)
		w.settle()
		w.p.NodeLeft("edge")
		w.wantPhases()
		w.p.NodeJoined("edge")
		w.wantPhases(platform.Starting)
	})
}

func TestTerminatingPodsAnswerWhatTheyHave(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		in := w.hot()
		name := strings.Split(in.ID, "_")[1]
		pod, err := a.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod = pod.DeepCopy()
		now := metav1.Now()
		pod.DeletionTimestamp = &now
		if _, err := a.client.CoreV1().Pods(namespace).Update(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if again := w.activate(); again.ID == in.ID {
			t.Error("a terminating pod is used")
		}
		for _, s := range w.p.InstancesOf("edge").GetInstances() {
			if want := s.GetId() == in.ID; want != (s.GetPhase() == nodeapi.Phase_PHASE_STOPPED) {
				t.Errorf("the node is told %v", s)
			}
		}
	})
}
