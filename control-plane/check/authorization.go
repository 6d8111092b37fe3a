package check

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
)

// How a pod gets its sidecar, as Istio documents for its injection.
const (
	injectLabel      = "istio-injection" // of a namespace
	injectEnabled    = "enabled"
	injectDisabled   = "disabled"
	injectPod        = "sidecar.istio.io/inject" // label, or annotation, of a pod
	revisionLabel    = "istio.io/rev"            // of a namespace or a pod
	meshCAFlag       = "--mesh-ca"               // of the daemon
	meshDomainFlag   = "--mesh-trust-domain"
	meshDomainNormal = "cluster.local" // by default; in policies it also stands for the mesh's own
)

func lookAuthorization(ctx context.Context, l *look) Outcome {
	switch served, err := l.Objects.Serves(ctx, objects.Authorizations); {
	case err != nil:
		return unknown("Istio's CRDs", err)
	case !served:
		return skip("Istio is not installed")
	}
	daemon, err := objects.Get[appsv1.DaemonSet](ctx, l.Objects, objects.DaemonSets, l.Namespace, daemonName)
	if apierrors.IsNotFound(err) {
		return skip("there is no node daemon")
	}
	if err != nil {
		return unknown("the daemons", err)
	}
	domain, inMesh := meshDomain(daemon.Spec.Template.Spec)
	if !inMesh {
		return skip("the daemons are no workloads of the mesh: switched off by the chart's istio.enabled or istio.mesh.enabled")
	}
	gateways, err := l.gatewayPods(ctx)
	if err != nil {
		return unknown("the gateways", err)
	}
	c := callers{daemon: principal{domain, l.Namespace, daemonName}}
	with, _ := overlays(gateways)
	for _, p := range with {
		c.add(principal{domain, p.Namespace, accountOf(p.Spec)})
	}
	if len(c.gateways) == 0 {
		return skip("no gateway has the overlay")
	}
	return l.authorization(ctx, c)
}

// authorization looks at the policies of all functions with a sidecar.
func (l *look) authorization(ctx context.Context, c callers) Outcome {
	policies, err := l.authorizationPolicies(ctx)
	if err != nil {
		return unknown("AuthorizationPolicies", err)
	}
	if len(policies) == 0 {
		return pass("there is none")
	}
	functions, err := l.functions(ctx)
	if err != nil {
		return unknown("the Services", err)
	}
	workloads, err := l.workloads(ctx)
	if err != nil {
		return unknown("Deployments and StatefulSets", err)
	}
	namespaces := map[string]corev1.Namespace{}
	var problems []Problem
	denied, count := 0, 0
	for _, f := range functions {
		n, ok := namespaces[f.namespace]
		if !ok {
			if n, err = objects.Get[corev1.Namespace](ctx, l.Objects, objects.Namespaces, "", f.namespace); err != nil {
				return unknown("namespace "+f.namespace, err)
			}
			namespaces[f.namespace] = n
		}
		sidecar := false
		var found []Problem
		for _, w := range f.workloads(workloads) {
			if !hasSidecar(n, w.pods) {
				continue
			}
			sidecar = true
			for _, p := range c.excluded(selecting(policies, w, l.MeshNamespace), f.object) {
				if !slices.Contains(found, p) { // of another workload of the function's
					found = append(found, p)
				}
			}
		}
		if sidecar {
			count++
		}
		if len(found) > 0 {
			denied++
			problems = append(problems, found...)
		}
	}
	if denied > 0 {
		return warn("%d of %d with sidecars %s the node daemon", denied, count, plural(denied, "denies", "deny")).with(problems)
	}
	return pass("%d with sidecars", count)
}

// meshDomain is the trust domain that a daemon has a certificate of, if it is to have one.
func meshDomain(pod corev1.PodSpec) (domain string, ok bool) {
	for _, c := range pod.Containers {
		args := slices.Concat(c.Command, c.Args)
		if flagValue(args, meshCAFlag) == "" {
			continue
		}
		if domain := flagValue(args, meshDomainFlag); domain != "" {
			return domain, true
		}
		return meshDomainNormal, true
	}
	return "", false
}

func accountOf(pod corev1.PodSpec) string {
	if pod.ServiceAccountName == "" {
		return "default"
	}
	return pod.ServiceAccountName
}

// hasSidecar says whether Istio injects one, or somebody has by hand. It asks the template,
// since a function that is at zero has no pods.
func hasSidecar(n corev1.Namespace, pods corev1.PodTemplateSpec) bool {
	if slices.ContainsFunc(slices.Concat(pods.Spec.InitContainers, pods.Spec.Containers), func(c corev1.Container) bool { return c.Name == proxyContainer }) {
		return true
	}
	wanted := pods.Labels[injectPod]
	if wanted == "" {
		wanted = pods.Annotations[injectPod]
	}
	switch {
	case n.Labels[injectLabel] == injectDisabled || wanted == "false":
		return false
	case wanted == "true" || pods.Labels[revisionLabel] != "":
		return true
	}
	return n.Labels[injectLabel] == injectEnabled || n.Labels[revisionLabel] != ""
}
