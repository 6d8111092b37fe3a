package kube_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/platform/platformtest"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A node hears how the pods of a function that may run ahead are closed, or why they cannot be. Gateways send nothing to them.
func TestPodsOfAFunctionThatRunsAhead(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	for name, tt := range map[string]struct {
		pod     func(*corev1.PodSpec)
		service func(*corev1.Service)
		also    bool // another function has the pods
		want    *nodeapi.Gate
	}{
		"one container": {want: &nodeapi.Gate{Container: "function", Port: 8080}},
		"a sidecar of Istio's": {pod: func(p *corev1.PodSpec) {
			p.Containers = append([]corev1.Container{{Name: "istio-proxy", Image: "proxy"}}, p.Containers...)
		}, want: &nodeapi.Gate{Container: "function", Port: 8080, Sidecar: true}},
		"a native one, and containers that end": {pod: func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "migrate", Image: "m"}, {Name: "istio-proxy", Image: "proxy", RestartPolicy: &always}}
		}, want: &nodeapi.Gate{Container: "function", Port: 8080, Sidecar: true}},
		"no container says that it has the port": {service: func(s *corev1.Service) { s.Spec.Ports[1].TargetPort.Type, s.Spec.Ports[1].TargetPort.IntVal = 0, 9000 },
			want: &nodeapi.Gate{Container: "function", Port: 9000}},
		"another container": {pod: func(p *corev1.PodSpec) {
			p.Containers = append(p.Containers, corev1.Container{Name: "log", Image: "log"})
		},
			want: &nodeapi.Gate{Container: "function", Port: 8080, Open: "its pods have another container, log"}},
		"another one that is started before": {pod: func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "vpn", Image: "vpn", RestartPolicy: &always}}
		}, want: &nodeapi.Gate{Container: "function", Port: 8080, Open: "its pods have another container, vpn"}},
		"another runtime": {pod: func(p *corev1.PodSpec) { p.RuntimeClassName = nil },
			want: &nodeapi.Gate{Port: 8080, Open: "its pods do without the runtime class headstart"}},
		"pods that end": {pod: func(p *corev1.PodSpec) { p.RestartPolicy = corev1.RestartPolicyNever },
			want: &nodeapi.Gate{Container: "function", Port: 8080, Open: "its pods are not started again when they end (restartPolicy)"}},
		"another function": {also: true, want: &nodeapi.Gate{Container: "function", Port: 8080, Open: "its pods are those of function also, too"}},
		"no port of that name": {service: func(s *corev1.Service) { s.Spec.Ports[1].TargetPort.StrVal = "nothing" },
			want: &nodeapi.Gate{Container: "function", Open: "its pods have no port nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
				w.cold()
				d, s := aheadOf(platformtest.Fire())
				if tt.pod != nil {
					tt.pod(&d.Spec.Template.Spec)
				}
				if tt.service != nil {
					tt.service(s)
				}
				w.apply(d)
				w.applyService(s)
				if tt.also {
					other := serviceOf(namespace, "also", platformtest.Fire())
					other.Spec.Selector = s.Spec.Selector
					w.applyService(other)
				}
				w.settle()
				in := w.activate()
				w.Ready(in, "10.0.0.1:8080")
				w.settle()
				var got *nodeapi.Gate
				for _, status := range w.p.InstancesOf(in.Node).GetInstances() {
					if status.GetFunction() == fire {
						got = status.GetGate()
					} else if status.GetGate() != nil {
						t.Errorf("%v", status)
					}
				}
				if got.String() != tt.want.String() {
					t.Errorf("the node hears %v, want %v", got, tt.want)
				}
				for e := range w.p.State().Hot() {
					if e.Function == fire {
						t.Errorf("gateways send to %v", e)
					}
				}
			})
		})
	}
}

// aheadOf is a function that may run ahead, as it is deployed.
func aheadOf(f platform.Function) (*appsv1.Deployment, *corev1.Service) {
	d, s, class := deploymentOf(namespace, "fire", f), serviceOf(namespace, "fire", f), "headstart"
	d.Spec.Template.Spec.RuntimeClassName = &class
	s.Annotations[policy.KeySpeculation] = policy.SpeculationAllowed
	return d, s
}

// What a node remembers of a function does not count for pods that are made of something else.
func TestARevisionOfAFunctionThatRunsAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *fakeAPI) {
		w.cold()
		d, s := aheadOf(platformtest.Fire())
		w.apply(d)
		w.applyService(s)
		w.settle()
		told := func() *nodeapi.Function {
			t.Helper()
			all := w.p.State().Functions
			if len(all) != 1 {
				t.Fatalf("%v", all)
			}
			return kube.Message(all[0])
		}
		before := told()
		if !before.GetOneAtATime() || !before.GetRunsAhead() || before.GetRevision() == "" {
			t.Errorf("nodes hear %v", before)
		}
		d, _ = aheadOf(platformtest.Fire())
		d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", Value: "another"}}
		w.apply(d)
		w.settle()
		if after := told(); after.GetRevision() == before.GetRevision() || strings.Contains(after.String(), "another") {
			t.Errorf("nodes hear %v, before %v", after, before)
		}
	})
}
