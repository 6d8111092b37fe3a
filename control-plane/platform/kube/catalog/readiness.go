package catalog

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/control-plane/platform/kube/object"
)

// maxProbePath bounds the probe's path, in bytes; no probe comes near it.
const maxProbePath = 1024

// readiness says how a node's daemon can tell that a pod takes requests, without waiting
// for the kubelet's next look and the API server: by the path of an HTTP probe, or, for an
// empty one, by connecting. platform is true when only Kubernetes can tell.
func readiness(t object.Template, c object.Container, port int32) (path string, platform bool) {
	if t.Gated || port == 0 {
		return "", true
	}
	for _, other := range t.Containers {
		if other.Name != c.Name && other.Probe != nil {
			return "", true // the pod is ready with the last of its containers
		}
	}
	switch p := c.Probe; {
	case p == nil:
		return "", false
	case p.TCPSocket != nil:
		return "", p.TCPSocket.Host != "" || !sameProbePort(p.TCPSocket.Port, c, port)
	case p.HTTPGet != nil:
		return httpProbe(p.HTTPGet, c, port)
	}
	return "", true // exec, gRPC
}

func httpProbe(get *corev1.HTTPGetAction, c object.Container, port int32) (path string, platform bool) {
	plain := get.Scheme == "" || get.Scheme == corev1.URISchemeHTTP
	if !plain || get.Host != "" || len(get.HTTPHeaders) > 0 || !sameProbePort(get.Port, c, port) {
		return "", true
	}
	path = get.Path
	if path == "" {
		path = "/"
	}
	if !strings.HasPrefix(path, "/") || len(path) > maxProbePath || strings.ContainsFunc(path, notInPath) {
		return "", true
	}
	return path, false
}

// notInPath reports what would break the probe's request line.
func notInPath(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }

func sameProbePort(probe intstr.IntOrString, c object.Container, port int32) bool {
	if probe.Type == intstr.Int {
		return probe.IntVal == port
	}
	for _, p := range c.Ports {
		if p.Name == probe.StrVal {
			return p.ContainerPort == port
		}
	}
	return false
}
