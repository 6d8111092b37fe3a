package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// hostnameLabel names a node among its labels.
const hostnameLabel = "kubernetes.io/hostname"

// findWorkload finds what makes the function's pods; false: the function is refused.
func (n *reading) findWorkload(of subject, f *Function) bool {
	var found []*object.Workload
	for _, all := range []map[string]*object.Workload{n.objects.Deployments, n.objects.StatefulSets} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if Matches(f.Selector, all[name].Labels) {
				found = append(found, all[name])
			}
		}
	}
	if len(found) > 1 && f.ScalesToZero {
		names := make([]string, len(found))
		for i, w := range found {
			names[i] = w.Kind + " " + w.Name
		}
		n.refuse(of, reasonWorkloadAmbiguous, policy.KeyScaleToZero, fmt.Sprintf(
			"%s: the Service selects the pods of %s, and only one can be scaled; narrow its selector, or remove the annotation", policy.KeyScaleToZero, strings.Join(names, " and ")))
		return false
	}
	for _, w := range found {
		f.describe(w)
	}
	if len(found) == 1 {
		f.Workload = found[0]
	}
	return true
}

// describe takes from the workload how its pods serve.
func (f *Function) describe(w *object.Workload) {
	c, port := serving(w.Template, f.Target)
	if f.Image == "" {
		f.Image = c.Image
	}
	if f.Port == 0 {
		f.Port = port
	}
	f.Node = w.Template.NodeSelector[hostnameLabel]
	path, platform := readiness(w.Template, c, port)
	if f.ProbePath != "" && f.ProbePath != path {
		platform = true // several workloads, and not the same probe
	}
	f.ProbePath, f.PlatformReadiness = path, f.PlatformReadiness || platform
	if f.PlatformReadiness {
		f.ProbePath = ""
	}
}

// serving returns the container that has the port, the first if none says so, and the
// port's number, 0 if nobody knows it.
func serving(t object.Template, target intstr.IntOrString) (object.Container, int32) {
	for _, c := range t.Containers {
		for _, p := range c.Ports {
			if target.Type == intstr.String && p.Name == target.StrVal || target.Type == intstr.Int && p.ContainerPort == target.IntVal {
				return c, p.ContainerPort
			}
		}
	}
	if len(t.Containers) == 0 {
		return object.Container{}, target.IntVal
	}
	return t.Containers[0], target.IntVal
}

// Matches says whether the selector selects what has the labels. The empty selector
// selects nothing, as in a Service.
func Matches(selector, labels map[string]string) bool {
	if len(selector) == 0 {
		return false
	}
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// settle looks at workloads that other autoscalers, or several functions, have.
func (n *reading) settle() {
	byWorkload := map[*object.Workload][]*Function{}
	for _, f := range n.functions {
		if f.Workload == nil {
			continue
		}
		byWorkload[f.Workload] = append(byWorkload[f.Workload], f)
		f.Wakes = f.ScalesToZero
		if s := n.scalerOf(f.Workload); s != nil {
			n.share(f, s)
		}
	}
	for w, functions := range byWorkload {
		n.settleWindows(w, functions)
	}
}

// share has Headstart scale between zero and one only, as far as the autoscaler leaves that to others. A
// HorizontalPodAutoscaler rests while there are no replicas; one that may have none scales to zero itself, and looks
// for work too rarely to wake for a request; KEDA keeps the least that it was told.
func (n *reading) share(f *Function, s *object.Scaler) {
	f.Scaler, f.Least = s.Kind+" "+s.Name, s.Least
	if s.Least == 0 {
		f.ScalesToZero = false
		return
	}
	if s.Kind == object.HorizontalPodAutoscaler || !f.ScalesToZero {
		return
	}
	f.ScalesToZero, f.Wakes = false, false
	n.problems = append(n.problems, Problem{Function: f.Name, Reason: reasonScaleToZeroNoEffect, Field: policy.KeyScaleToZero,
		Message: fmt.Sprintf("%s has no effect: %s keeps %d replicas of %s %s; set its minReplicaCount to 0", policy.KeyScaleToZero, f.Scaler, s.Least, f.Workload.Kind, f.Workload.Name)})
}

// settleWindows refuses functions that want different idle windows of one workload.
func (n *reading) settleWindows(w *object.Workload, functions []*Function) {
	var asking []*Function
	for _, f := range functions {
		if f.ScalesToZero {
			asking = append(asking, f)
		}
	}
	if !slices.ContainsFunc(asking, func(f *Function) bool { return f.Policy.ScaleToZero != asking[0].Policy.ScaleToZero }) {
		return
	}
	says := make([]string, len(asking))
	for i, f := range asking {
		says[i] = fmt.Sprintf("%q on %s", f.Policy.ScaleToZero, f.Name)
	}
	for _, f := range asking {
		n.refuse(subject{name: f.Name}, reasonAnnotationsConflict, policy.KeyScaleToZero, fmt.Sprintf(
			"%s: %s %s is behind several Services that do not agree: %s; write the same value on each", policy.KeyScaleToZero, w.Kind, w.Name, strings.Join(says, ", ")))
		n.functions = slices.DeleteFunc(n.functions, func(other *Function) bool { return other == f })
	}
}

// scalerOf is the autoscaler that has the workload, nil for none.
func (n *reading) scalerOf(w *object.Workload) *object.Scaler {
	// KEDA makes a HorizontalPodAutoscaler; what the owner knows is the ScaledObject.
	for _, all := range []map[string]*object.Scaler{n.objects.ScaledObjects, n.objects.Autoscalers} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if s := all[name]; s.TargetKind == w.Kind && s.TargetName == w.Name {
				return s
			}
		}
	}
	return nil
}
