package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// The oldest versions that do.
var (
	// Kubernetes 1.30 has ValidatingAdmissionPolicy v1, and says which node a token is for.
	oldestKubernetes = version.MustParseGeneric("1.30")
	// containerd 1.6 is Debian 12's, and has the shim API that we use.
	oldestContainerd = version.MustParseGeneric("1.6")
	// Linux 5.4 is the oldest that the distributions with such a containerd have.
	oldestKernel = version.MustParseGeneric("5.4")
	// Istio 1.30 has TrafficExtension.
	oldestIstio = version.MustParseGeneric("1.30")
)

func lookKubernetes(ctx context.Context, l *look) Outcome {
	text, err := l.Objects.Version(ctx)
	if err != nil {
		o := unknown("the API server", err)
		o.unanswered = o.Status == Fail // whatever it is that answers
		return o
	}
	v, err := version.ParseGeneric(text)
	if err != nil {
		return warn("its version %q is not known", text)
	}
	if v.LessThan(oldestKubernetes) {
		return fail("%s is older than %s", text, oldestKubernetes)
	}
	return pass("%s", text)
}

func lookAdmissionAPI(ctx context.Context, l *look) Outcome {
	for _, r := range []schema.GroupVersionResource{objects.AdmissionPolicies, objects.AdmissionBindings} {
		switch served, err := l.Objects.Serves(ctx, r); {
		case err != nil:
			return unknown(r.Resource, err)
		case !served:
			return fail("%s of %s are not served", r.Resource, r.GroupVersion())
		}
	}
	return pass("served")
}

// perNode looks at each node; what is wrong with some of them is a warning.
func perNode(ctx context.Context, l *look, describe func(corev1.Node) (value, problem string)) Outcome {
	nodes, err := l.nodes(ctx)
	if err != nil {
		return unknown("the nodes", err)
	}
	counts := map[string]int{}
	var problems []Problem
	for _, n := range nodes {
		value, problem := describe(n)
		counts[value]++
		if problem != "" {
			problems = append(problems, Problem{Object: "Node " + n.Name, Message: problem})
		}
	}
	var values []string
	for value, n := range counts {
		values = append(values, fmt.Sprintf("%s (%d %s)", value, n, plural(n, "node", "nodes")))
	}
	slices.Sort(values)
	list := strings.Join(values, ", ")
	switch {
	case len(nodes) == 0:
		return fail("there is no node")
	case len(problems) == len(nodes):
		return fail("%s", list).with(problems)
	case len(problems) > 0:
		return warn("%s", list).with(problems)
	}
	return pass("%s", list)
}

func lookContainerd(ctx context.Context, l *look) Outcome {
	return perNode(ctx, l, func(n corev1.Node) (value, problem string) {
		runtime, number, _ := strings.Cut(n.Status.NodeInfo.ContainerRuntimeVersion, "://")
		value = strings.TrimSpace(runtime + " " + number)
		if value == "" {
			return "unknown", "it does not say what runs its containers"
		}
		if os := n.Status.NodeInfo.OperatingSystem; os != "linux" && os != "" {
			return value, "it runs " + os
		}
		if arch := n.Status.NodeInfo.Architecture; arch != "amd64" && arch != "arm64" && arch != "" {
			return value, "its processor is " + arch + "; there are images for amd64 and arm64"
		}
		v, err := version.ParseGeneric(number)
		if runtime != "containerd" {
			return value, "its containers are not run by containerd"
		}
		if err != nil || v.LessThan(oldestContainerd) {
			return value, "it is older than containerd " + oldestContainerd.String()
		}
		return value, ""
	})
}

func lookKernel(ctx context.Context, l *look) Outcome {
	return perNode(ctx, l, func(n corev1.Node) (value, problem string) {
		text := n.Status.NodeInfo.KernelVersion
		major, minor := 0, 0
		if _, err := fmt.Sscanf(text, "%d.%d", &major, &minor); err != nil {
			return "unknown", fmt.Sprintf("its kernel's version %q is not known", text)
		}
		value = fmt.Sprintf("Linux %d.%d", major, minor)
		if version.MustParseGeneric(fmt.Sprintf("%d.%d", major, minor)).LessThan(oldestKernel) {
			problem = text + " is older than " + oldestKernel.String()
		}
		return value, problem
	})
}

func lookIstio(ctx context.Context, l *look) Outcome {
	served, err := l.Objects.Serves(ctx, objects.EnvoyFilters)
	if err != nil {
		return unknown("Istio's CRDs", err)
	}
	if !served {
		return fail("the cluster does not know EnvoyFilters: Istio is not installed")
	}
	control, err := objects.List[appsv1.Deployment](ctx, l.Objects, objects.Deployments, l.MeshNamespace, "app=istiod")
	if err != nil {
		return unknown("istiod", err)
	}
	if len(control) == 0 {
		return warn("no istiod in namespace %s; is its root namespace another?", l.MeshNamespace)
	}
	var versions []string
	var old []Problem
	for _, d := range control {
		text := imageVersion(d)
		versions = append(versions, text)
		if v, err := version.ParseGeneric(text); err == nil && v.LessThan(oldestIstio) {
			old = append(old, Problem{Object: "Deployment " + d.Namespace + "/" + d.Name, Message: text + " is older than " + oldestIstio.String()})
		}
	}
	slices.Sort(versions)
	list := strings.Join(slices.Compact(versions), ", ")
	if len(old) > 0 {
		return warn("%s", list).with(old)
	}
	return pass("%s", list)
}

// imageVersion is the tag of istiod's image, such as 1.31.1 of 1.31.1-distroless.
func imageVersion(d appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		image, _, _ := strings.Cut(c.Image, "@")
		if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
			number, _, _ := strings.Cut(image[i+1:], "-")
			return number
		}
	}
	return "unknown"
}

func lookFilterAPI(ctx context.Context, l *look) Outcome {
	for _, r := range []schema.GroupVersionResource{objects.TrafficExtensions, objects.WasmPlugins} {
		switch served, err := l.Objects.Serves(ctx, r); {
		case err != nil:
			return unknown("Istio's CRDs", err)
		case served:
			return pass("%s", r.Resource)
		}
	}
	return fail("the cluster knows neither TrafficExtensions nor WasmPlugins")
}

func lookAutoscalers(ctx context.Context, l *look) Outcome {
	var there []string
	for name, r := range map[string]schema.GroupVersionResource{"Knative Serving": objects.KnativeServices, "KEDA": objects.ScaledObjects} {
		switch served, err := l.Objects.Serves(ctx, r); {
		case err != nil:
			return unknown(name, err)
		case served:
			there = append(there, name)
		}
	}
	slices.Sort(there)
	if len(there) == 0 {
		return pass("neither Knative Serving nor KEDA")
	}
	return pass("%s; they scale to zero what is theirs", strings.Join(there, ", "))
}
