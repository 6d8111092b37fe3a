package check

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/check/objects"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// What gateways have by manifests/istio/install.yaml.
const (
	gatewayDirectory = "/run/headstart/gateway"
	gatewayVariable  = "ISTIO_META_HEADSTART"
	gatewayLabel     = "headstart.dev/gateway"
)

// gatewaySelectors find the pods of gateways: ours, those of istioctl and the charts, and
// those of Kubernetes Gateways.
var gatewaySelectors = []string{gatewayLabel + "=true", "istio", "gateway.networking.k8s.io/gateway-name"}

// Names of manifests/istio.
const (
	filterName       = "headstart-prefetch"
	gatewaysName     = "headstart-gateways"
	keysName         = "headstart-keys"
	keyFilterName    = "headstart-key"   // of the clusters in gatewaysName
	oldFilterName    = "headstart.route" // of an older version
	generatedObjects = "app.kubernetes.io/managed-by=headstart,app.kubernetes.io/component=function"
)

// gatewayPods are the pods of all gateways.
func (l *look) gatewayPods(ctx context.Context) ([]corev1.Pod, error) {
	var all []corev1.Pod
	seen := map[string]bool{}
	for _, selector := range gatewaySelectors {
		pods, err := objects.List[corev1.Pod](ctx, l.Objects, objects.Pods, "", selector)
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			id := p.Namespace + "/" + p.Name
			if !seen[id] && p.DeletionTimestamp == nil && (p.Labels[gatewayLabel] == "true" || objects.Router(p) != nil) {
				seen[id] = true
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// overlay is what a gateway's pod has of ours.
type overlay struct{ variable, mount, label bool }

func overlayOf(p corev1.Pod) overlay {
	o := overlay{label: p.Labels[gatewayLabel] == "true"}
	volumes := map[string]bool{}
	for _, v := range p.Spec.Volumes {
		if v.HostPath != nil && v.HostPath.Path == gatewayDirectory {
			volumes[v.Name] = true
		}
	}
	for _, c := range p.Spec.Containers {
		for _, e := range c.Env {
			o.variable = o.variable || e.Name == gatewayVariable && e.Value == "true"
		}
		for _, m := range c.VolumeMounts {
			o.mount = o.mount || volumes[m.Name] && m.MountPath == gatewayDirectory
		}
	}
	return o
}

// problem is what is wrong with a gateway that has a part of the overlay.
func (o overlay) problem() string {
	switch {
	case o.variable && !o.mount:
		return gatewayVariable + " tells it of sockets that are not mounted: it cannot reach any function; mount the host's " + gatewayDirectory + ", or remove the variable"
	case o.mount && !o.variable:
		return "it has no " + gatewayVariable + `="true" in its environment: no EnvoyFilter of ours applies to it`
	case !o.label && o.mount:
		return "its pods lack the label " + gatewayLabel + "=true: it has no prefetch filter"
	case o.label && !o.mount:
		return "it has the label " + gatewayLabel + "=true, and neither variable nor mount: hints of its filter get lost"
	}
	return ""
}

func lookOverlay(ctx context.Context, l *look) Outcome {
	pods, err := l.gatewayPods(ctx)
	if err != nil {
		return unknown("the gateways", err)
	}
	with, problems := overlays(pods)
	switch {
	case len(problems) > 0:
		return fail("%d of %d gateway pods have it in part", len(problems), len(pods)).with(problems)
	case len(with) == 0:
		return warn("none of %d gateway pods has it", len(pods))
	}
	return pass("%d of %d gateway pods have it", len(with), len(pods))
}

// overlays returns the pods that have all of it, and what is wrong with those that have
// a part.
func overlays(pods []corev1.Pod) (with []corev1.Pod, problems []Problem) {
	for _, p := range pods {
		o := overlayOf(p)
		if m := o.problem(); m != "" {
			problems = append(problems, Problem{Object: "Pod " + p.Namespace + "/" + p.Name, Message: m})
		} else if o.mount {
			with = append(with, p)
		}
	}
	return with, problems
}

func lookGateways(ctx context.Context, l *look) Outcome {
	pods, err := l.gatewayPods(ctx)
	if err != nil {
		return unknown("the gateways", err)
	}
	daemons, err := l.daemonPods(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return unknown("the daemons", err)
	}
	ready := map[string]bool{}
	for _, d := range daemons {
		ready[d.Spec.NodeName] = ready[d.Spec.NodeName] || podReady(d)
	}
	with, problems := overlays(pods)
	for _, p := range with {
		if p.Spec.NodeName != "" && !ready[p.Spec.NodeName] {
			problems = append(problems, Problem{Object: "Pod " + p.Namespace + "/" + p.Name,
				Message: "it runs on node " + p.Spec.NodeName + ", which has no daemon that is ready: it cannot reach any function"})
		}
	}
	count := fmt.Sprintf("%d of %d gateway pods have the overlay", len(with), len(pods))
	switch {
	case len(problems) > 0:
		return fail("%s", count).with(problems)
	case len(with) == 0:
		return l.lacking(ctx, partIstio, fail("%s", count))
	}
	return pass("%s", count)
}

func lookFilter(ctx context.Context, l *look) Outcome {
	var found []unstructured.Unstructured
	for _, r := range []schema.GroupVersionResource{objects.TrafficExtensions, objects.WasmPlugins} {
		served, err := l.Objects.Serves(ctx, r)
		if err != nil {
			return unknown("Istio's CRDs", err)
		}
		if !served {
			continue
		}
		o, err := objects.Get[unstructured.Unstructured](ctx, l.Objects, r, l.MeshNamespace, filterName)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return unknown(r.Resource, err)
		}
		found = append(found, o)
	}
	switch len(found) {
	case 0:
		return l.lacking(ctx, partIstio, fail("namespace %s has neither TrafficExtension nor WasmPlugin %s", l.MeshNamespace, filterName))
	case 1:
		return filterOutcome(found[0])
	}
	return fail("there is a TrafficExtension and a WasmPlugin %s: the filter runs twice; remove one", filterName)
}

// filterOutcome looks at the object that brings the filter.
func filterOutcome(o unstructured.Unstructured) Outcome {
	at := []string{"spec"}
	if o.GetKind() == "TrafficExtension" {
		at = append(at, "wasm")
	}
	fields, _, _ := unstructured.NestedMap(o.Object, at...) // of another type: no configuration
	config, _ := fields["pluginConfig"].(map[string]any)
	if len(config) == 0 {
		return fail("%s has no configuration yet", o.GetKind())
	}
	text, err := json.Marshal(config)
	if err != nil {
		return fail("its configuration: %v", err)
	}
	c, err := filterapi.ParseConfig(text)
	if err != nil {
		return fail("its configuration does not do for this version: %v", err)
	}
	if s, _ := fields["failStrategy"].(string); s != "FAIL_OPEN" {
		return warn("its failStrategy is %q: when the filter fails, requests do, too; use FAIL_OPEN", s)
	}
	return pass("%s, configuration %s", o.GetKind(), c.Version)
}

// istioStatus is what Istio says of an object, where its status is enabled.
type istioStatus struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Messages []struct {
			Type struct {
				Code string `json:"code"`
				Name string `json:"name"`
			} `json:"type"`
			Level            any    `json:"level"` // ERROR, or 3 in older versions
			DocumentationURL string `json:"documentationUrl"`
		} `json:"validationMessages"`
	} `json:"status"`
}

func lookEnvoyFilters(ctx context.Context, l *look) Outcome {
	served, err := l.Objects.Serves(ctx, objects.EnvoyFilters)
	if err != nil {
		return unknown("Istio's CRDs", err)
	}
	if !served {
		return skip("Istio is not installed")
	}
	var gateways envoyFilter
	for _, name := range []string{keysName, gatewaysName} {
		var err error
		gateways, err = objects.Get[envoyFilter](ctx, l.Objects, objects.EnvoyFilters, l.MeshNamespace, name)
		if apierrors.IsNotFound(err) {
			return l.lacking(ctx, partIstio, fail("namespace %s has no EnvoyFilter %s", l.MeshNamespace, name))
		}
		if err != nil {
			return unknown("EnvoyFilters", err)
		}
	}
	all, err := objects.List[istioStatus](ctx, l.Objects, objects.EnvoyFilters, l.MeshNamespace, generatedObjects)
	if err != nil {
		return unknown("EnvoyFilters", err)
	}
	var problems []Problem
	for _, f := range all {
		for _, m := range f.Status.Messages {
			if level := fmt.Sprint(m.Level); level == "ERROR" || level == "3" {
				problems = append(problems, Problem{Object: "EnvoyFilter " + f.Metadata.Name, Message: m.Type.Code + " " + m.Type.Name + " " + m.DocumentationURL})
			}
		}
	}
	if len(problems) > 0 {
		return fail("Istio does not accept %d of %d", len(problems), len(all)).with(problems)
	}
	if !gateways.keyed() {
		return fail("EnvoyFilter %s is of an older version, without the gateways' key: daemons refuse their streams and hints", gatewaysName)
	}
	if gateways.has(oldFilterName) {
		return fail("EnvoyFilter %s is of an older version: gateways load code (the filter %s) from their nodes' daemons", gatewaysName, oldFilterName)
	}
	return pass("%s and %d of functions", gatewaysName, len(all))
}

// envoyFilter is what an EnvoyFilter puts into gateways.
type envoyFilter struct {
	Spec struct {
		ConfigPatches []struct {
			Patch struct {
				Value struct {
					Name    string         `json:"name"`
					Options map[string]any `json:"typed_extension_protocol_options"`
				} `json:"value"`
			} `json:"patch"`
		} `json:"configPatches"`
	} `json:"spec"`
}

func (f envoyFilter) has(name string) bool {
	for _, p := range f.Spec.ConfigPatches {
		if p.Patch.Value.Name == name {
			return true
		}
	}
	return false
}

// keyed says whether it has gateways show their key.
func (f envoyFilter) keyed() bool {
	for _, p := range f.Spec.ConfigPatches {
		if strings.Contains(fmt.Sprint(p.Patch.Value.Options), keyFilterName) {
			return true
		}
	}
	return false
}
