package kube_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// The attacker is a node: it asks for instances of a function that nothing there can send requests to. Neither
// its static pods nor pods of others make it one that may.
func TestAttackANodeAsksForWhatItCannotSend(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, a *fakeAPI) {
		w.cold()
		class := "headstart"
		caller := func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class }
		mirror := func(p *corev1.Pod) {
			caller(p)
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "1"}
			p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/run/headstart/gateway"}}}}
		}
		w.place("default", "elsewhere", caller)
		w.place("default", "static", mirror)
		w.place("default", "plain", func(*corev1.Pod) {})
		w.place("other", "stranger", caller)
		w.place("default", "over", func(p *corev1.Pod) { caller(p); p.Status.Phase = corev1.PodSucceeded })
		w.settle()
		for _, node := range []string{"empty", "static", "plain", "stranger", "over"} {
			_, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: node})
			if r, ok := errors.AsType[*platform.Refusal](err); !ok || r.Status != 403 || r.Reason != "NodeNotAllowed" {
				t.Errorf("%s: %v", node, err)
			}
		}
		if got := a.scales(); len(got) > 0 {
			t.Errorf("scaled to %v", got)
		}
	})
}

// Nodes ask for what comes from a gateway there, from a pod that may call, or from a stream.
func TestNodesThatMaySend(t *testing.T) {
	class := "headstart"
	caller := func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class }
	inside := func(path string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path}}}}
		}
	}
	for name, c := range map[string]struct {
		namespace, annotation, value string
		pod                          func(*corev1.Pod)
		may                          bool
	}{
		"a gateway":                          {namespace: "istio-system", pod: inside("/run/headstart/gateway/"), may: true},
		"a pod with the directory above":     {namespace: "istio-system", pod: inside("/run"), may: true},
		"a pod with another directory":       {namespace: "istio-system", pod: inside("/run/headstart/gateway/x")},
		"a pod of the function's namespace":  {namespace: "default", pod: caller, may: true},
		"a pod of a namespace that may call": {namespace: "shop", annotation: policy.KeyCallers, value: "shop", pod: caller, may: true},
		"a pod of another namespace":         {namespace: "shop", pod: caller},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
				w.cold()
				if c.annotation != "" {
					s := serviceOf(namespace, "fire", platformtest.Fire())
					s.Annotations[c.annotation] = c.value
					w.applyService(s)
				}
				w.place(c.namespace, "new", c.pod)
				w.settle()
				_, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "new"})
				if (err == nil) != c.may {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// A gateway's first requests may come before the control plane has heard of its pod.
func TestAGatewayThatHasJustBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
		w.cold()
		bound := make(chan error, 1)
		go func() {
			_, err := w.p.Activate(t.Context(), platform.Request{Function: fire, Node: "late"})
			bound <- err
		}()
		w.settle()
		w.place("istio-system", "late", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/run/headstart/gateway"}}}}
		})
		if err := <-bound; err != nil {
			t.Error(err)
		}
	})
}

// A node may have what is for its pods, for the functions that these may call, and for its gateway. The attacker is a node
// that makes static pods of another namespace: they bring nothing.
func TestAttackANodeMakesItselfATenant(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
		w.cold()
		class := "headstart"
		caller := func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class }
		w.applyService(serviceOf("shop", "loose", platformtest.Fire()))
		instance := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "loose"} }
		static := func(p *corev1.Pod) {
			caller(p)
			instance(p)
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "1", policy.KeyInput: "s3://videos/1"}
			p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/run/headstart/gateway"}}}}
		}
		gateway := func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/run/headstart/gateway"}}}}
		}
		w.place("default", "calls", caller)
		for _, node := range []string{"static", "runs"} {
			w.Join(node)
		}
		w.place("shop", "static", static)
		w.place("shop", "runs", instance)
		w.place("other", "stranger", caller)
		w.place("istio-system", "edge", gateway)
		w.settle()
		got := w.p.Tenants()
		for node, want := range map[string]string{"calls": "default", "runs": "shop", "static": "", "stranger": "", "edge": "*"} {
			if all := strings.Join(got[node], " "); all != want {
				t.Errorf("%s may have %q, want %q", node, all, want)
			}
		}
	})
}
