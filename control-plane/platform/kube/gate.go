package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/catalog"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// sidecar is the name of the container that Istio injects.
const sidecar = "istio-proxy"

// gate is how a pod's sandbox is to be closed, or why it cannot be.
type gate struct {
	container string // of the function's program
	port      int32
	sidecar   bool
	open      string
}

// gateOf is that of a pod of a function that runs ahead; the caller holds mu.
func (p *Platform) gateOf(f *function, pod *object.Pod) *gate {
	g := &gate{port: portOf(pod, f.Target)}
	var others []string
	for _, c := range pod.Containers {
		if c.Name == sidecar {
			g.sidecar = true
		} else {
			others = append(others, c.Name)
		}
	}
	if with, ok := pod.ContainerWith(f.Target); ok {
		g.container = with
	} else if len(others) > 0 {
		g.container = others[0]
	}
	others = slices.DeleteFunc(others, func(name string) bool { return name == g.container })
	switch also := p.alsoOf(f, pod); {
	case pod.RuntimeClass != object.RuntimeClass:
		g.open = "its pods do without the runtime class " + object.RuntimeClass
	case pod.Once:
		g.open = "its pods are not started again when they end (restartPolicy)"
	case g.port == 0:
		g.open = "its pods have no port " + f.Target.String()
	case len(others) > 0:
		g.open = fmt.Sprintf("its pods have another container, %s", others[0])
	case also != "":
		g.open = fmt.Sprintf("its pods are those of function %s, too", also)
	}
	return g
}

// alsoOf is the name of another function that has the pod; empty: none has. The caller holds mu.
func (p *Platform) alsoOf(f *function, pod *object.Pod) string {
	inside := p.inside[pod.Namespace]
	for _, name := range slices.Sorted(maps.Keys(inside)) {
		other := inside[name]
		if other != f && !other.Withdrawn && other.Relay == nil && catalog.Matches(other.Selector, pod.Labels) {
			_, short, _ := strings.Cut(name, "/")
			return short
		}
	}
	return ""
}
