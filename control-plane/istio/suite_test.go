package istio_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/headstart-mesh/headstart/control-plane/istio"
)

// server is an API server for one case: Istio's kinds installed, no objects.
type server interface {
	// api acts as the control plane's service account.
	api() istio.API
	create(t *testing.T, k istio.Kind, o *unstructured.Unstructured)
	// edit is a merge patch of a person's.
	edit(t *testing.T, k istio.Kind, namespace, name string, patch map[string]any)
	get(t *testing.T, k istio.Kind, namespace, name string) *unstructured.Unstructured
	// permit gives the control plane its rules, or takes them.
	permit(t *testing.T, allowed bool)
	// install adds Istio's kinds to the server, or removes them.
	install(t *testing.T, installed bool)
}

const root = "istio-system"

var suite = map[string]func(t *testing.T, s server){
	"functions come, change and go":                     functionsComeAndGo,
	"what others change of ours is put back":            driftIsRepaired,
	"what others add stays theirs":                      additionsStay,
	"objects of others are left alone":                  othersAreLeftAlone,
	"nothing is deleted before the state is known":      nothingBeforeSet,
	"the filter's configuration follows":                configurationFollows,
	"a field of another manager is told, not taken":     contestedFieldIsTold,
	"a missing filter is told, functions work without":  missingFilterIsTold,
	"denied rules are told and tried again":             denialIsTold,
	"without Istio nothing happens, until it comes":     istioComesLater,
	"a revision's label is set and taken away":          revisionIsLabelled,
	"after Remove only what others have made is there":  removeLeavesNothing,
	"an older Istio's WasmPlugin is configured as well": wasmPluginIsConfigured,
}

func runSuite(t *testing.T, each func(t *testing.T, body func(t *testing.T, s server))) {
	for name, body := range suite {
		t.Run(name, func(t *testing.T) { each(t, body) })
	}
}

func fire(host string) istio.Function {
	return istio.Function{
		Name: "default/fire", Service: istio.Service{Host: host, Port: 80, Endpoints: "default/fire:80"},
	}
}

const (
	fireHost = "fire.default.svc.cluster.local"
	fireName = "headstart.default.fire"
)

// start runs a Writer until the test's end, or until stop is called.
func start(t *testing.T, s server, cfg istio.Config) (w *istio.Writer, stop func()) {
	w = istio.NewWriter(s.api(), cfg, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return w, stop
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ask := func(context.Context) (bool, error) { return ok(), nil }
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, ask); err != nil {
		t.Fatalf("never: %s: %v", what, err)
	}
}

func clusterName(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	patches, _, _ := unstructured.NestedSlice(o.Object, "spec", "configPatches")
	var names []string
	for _, p := range patches {
		name, _, _ := unstructured.NestedString(p.(map[string]any), "match", "cluster", "name")
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func extension() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"wasm": map[string]any{"url": "oci://example.com/prefetch:1", "failStrategy": "FAIL_OPEN"}},
	}}
	o.SetGroupVersionKind(istio.TrafficExtension.GVK)
	o.SetNamespace(root)
	o.SetName(istio.PrefetchName)
	return o
}

// hints is where the filter of an object sends hints: what there is to see of its configuration.
func hints(o *unstructured.Unstructured, path ...string) string {
	if o == nil {
		return ""
	}
	s, _, _ := unstructured.NestedString(o.Object, append(path, "hintCluster")...)
	return s
}

// ours is what hints returns of the control plane's configuration.
const ours = "headstart-hints"

func config(t *testing.T) []byte {
	t.Helper()
	text, err := istio.PluginConfig()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func causes(w *istio.Writer) string {
	var all []string
	for _, p := range w.Status().Problems {
		all = append(all, string(p.Cause))
	}
	return strings.Join(all, " ")
}

func functionsComeAndGo(t *testing.T, s server) {
	w, _ := start(t, s, istio.Config{})
	name := func() string { return clusterName(s.get(t, istio.EnvoyFilter, root, fireName)) }
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	eventually(t, "the function's object", func() bool { return name() == "outbound|80||"+fireHost })
	w.Set(istio.Desired{Functions: []istio.Function{fire("fire-00002.default.svc.cluster.local")}})
	eventually(
		t, "the other service's cluster",
		func() bool { return name() == "outbound|80||fire-00002.default.svc.cluster.local" },
	)
	eventually(t, "a status without problems", func() bool { st := w.Status(); return st.Installed && st.Objects == 1 && len(st.Problems) == 0 })
	w.Set(istio.Desired{})
	eventually(t, "no object", func() bool { return name() == "" })
}

func driftIsRepaired(t *testing.T, s server) {
	w, _ := start(t, s, istio.Config{})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	name := func() string { return clusterName(s.get(t, istio.EnvoyFilter, root, fireName)) }
	eventually(t, "the function's object", func() bool { return name() != "" })
	s.edit(t, istio.EnvoyFilter, root, fireName, map[string]any{"spec": map[string]any{"configPatches": []any{}}})
	eventually(t, "the object as it was", func() bool { return name() == "outbound|80||"+fireHost })
}

func additionsStay(t *testing.T, s server) {
	w, _ := start(t, s, istio.Config{})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	get := func() *unstructured.Unstructured { return s.get(t, istio.EnvoyFilter, root, fireName) }
	eventually(t, "the function's object", func() bool { return get() != nil })
	s.edit(t, istio.EnvoyFilter, root, fireName, map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "fire"}}})
	w.Set(istio.Desired{Functions: []istio.Function{fire("fire-00002.default.svc.cluster.local")}})
	eventually(t, "the change", func() bool { return clusterName(get()) == "outbound|80||fire-00002.default.svc.cluster.local" })
	if get().GetLabels()["team"] != "fire" {
		t.Errorf("labels: %v", get().GetLabels())
	}
}

func othersAreLeftAlone(t *testing.T, s server) {
	foreign := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"priority": int64(7)}}}
	foreign.SetGroupVersionKind(istio.EnvoyFilter.GVK)
	foreign.SetNamespace(root)
	foreign.SetName(fireName)
	s.create(t, istio.EnvoyFilter, foreign)
	other := foreign.DeepCopy()
	other.SetName("theirs")
	s.create(t, istio.EnvoyFilter, other)
	w, _ := start(t, s, istio.Config{})
	w.Set(istio.Desired{
		Functions: []istio.Function{
			fire(fireHost), {Name: "default/water", Service: istio.Service{
				Host: "water.default.svc.cluster.local", Port: 80, Endpoints: "default/water:80",
			}},
		},
	})
	eventually(t, "word of the taken name", func() bool { return causes(w) == "NotOurs" })
	eventually(t, "the other function's object", func() bool { return s.get(t, istio.EnvoyFilter, root, "headstart.default.water") != nil })
	w.Set(istio.Desired{})
	eventually(t, "the other function's end", func() bool { return s.get(t, istio.EnvoyFilter, root, "headstart.default.water") == nil })
	for _, name := range []string{fireName, "theirs"} {
		o := s.get(t, istio.EnvoyFilter, root, name)
		if o == nil || clusterName(o) != "" {
			t.Errorf("%s is now %v", name, o)
		}
	}
}

func nothingBeforeSet(t *testing.T, s server) {
	before, stop := start(t, s, istio.Config{})
	before.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	get := func() *unstructured.Unstructured { return s.get(t, istio.EnvoyFilter, root, fireName) }
	eventually(t, "the function's object", func() bool { return get() != nil })
	stop()
	uid := get().GetUID()
	after, _ := start(t, s, istio.Config{})
	s.edit(t, istio.EnvoyFilter, root, fireName, map[string]any{"metadata": map[string]any{"labels": map[string]any{"seen": "yes"}}})
	after.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	eventually(t, "a status", func() bool { return after.Status().Objects == 1 })
	if get().GetUID() != uid {
		t.Error("the object was deleted and made again")
	}
}

func configurationFollows(t *testing.T, s server) {
	s.create(t, istio.TrafficExtension, extension())
	w, _ := start(t, s, istio.Config{})
	got := func() string {
		return hints(s.get(t, istio.TrafficExtension, root, istio.PrefetchName), "spec", "wasm", "pluginConfig")
	}
	w.Set(istio.Desired{PluginConfig: config(t)})
	eventually(t, "the configuration", func() bool { return got() == ours })
	s.edit(t, istio.TrafficExtension, root, istio.PrefetchName, map[string]any{"spec": map[string]any{"wasm": map[string]any{"pluginConfig": nil}}})
	eventually(t, "the configuration, again", func() bool { return got() == ours })
	url, _, _ := unstructured.NestedString(s.get(t, istio.TrafficExtension, root, istio.PrefetchName).Object, "spec", "wasm", "url")
	if url != "oci://example.com/prefetch:1" {
		t.Errorf("url is now %q", url)
	}
}

func contestedFieldIsTold(t *testing.T, s server) {
	s.create(t, istio.TrafficExtension, extension())
	w, _ := start(t, s, istio.Config{})
	got := func() string {
		return hints(s.get(t, istio.TrafficExtension, root, istio.PrefetchName), "spec", "wasm", "pluginConfig")
	}
	w.Set(istio.Desired{PluginConfig: config(t)})
	eventually(t, "the configuration", func() bool { return got() == ours })
	s.edit(t, istio.TrafficExtension, root, istio.PrefetchName, map[string]any{"spec": map[string]any{"wasm": map[string]any{"pluginConfig": map[string]any{"hintCluster": "theirs"}}}})
	eventually(t, "word of the conflict", func() bool { return causes(w) == "Contested" })
	if p := w.Status().Problems[0]; !strings.Contains(p.Message, "kubectl-edit") {
		t.Errorf("the other manager is not named: %v", p)
	}
	if got() != "theirs" {
		t.Errorf("the field was taken: %q", got())
	}
	s.edit(t, istio.TrafficExtension, root, istio.PrefetchName, map[string]any{"spec": map[string]any{"wasm": map[string]any{"pluginConfig": nil}}})
	eventually(t, "our configuration", func() bool { return got() == ours && causes(w) == "" })
}

func missingFilterIsTold(t *testing.T, s server) {
	w, _ := start(t, s, istio.Config{})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}, PluginConfig: config(t)})
	eventually(t, "word of it", func() bool { return causes(w) == "Missing" })
	if st := w.Status(); st.Objects != 1 {
		t.Errorf("status: %+v", st)
	}
	s.create(t, istio.TrafficExtension, extension())
	eventually(t, "no problem any more", func() bool { return causes(w) == "" })
}

func denialIsTold(t *testing.T, s server) {
	s.permit(t, false)
	w, _ := start(t, s, istio.Config{})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	eventually(t, "word of it", func() bool { return causes(w) == "Forbidden" })
	if p := w.Status().Problems[0]; p.Fix == "" || !strings.Contains(p.Message, "forbidden") {
		t.Errorf("says too little: %+v", p)
	}
	s.permit(t, true)
	eventually(t, "the function's object", func() bool { return s.get(t, istio.EnvoyFilter, root, fireName) != nil })
}

func istioComesLater(t *testing.T, s server) {
	s.install(t, false)
	w, _ := start(t, s, istio.Config{})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}, PluginConfig: config(t)})
	eventually(t, "a status", func() bool { return !w.Status().Installed && causes(w) == "" })
	s.install(t, true)
	eventually(t, "the function's object", func() bool { return s.get(t, istio.EnvoyFilter, root, fireName) != nil && w.Status().Installed })
}

func revisionIsLabelled(t *testing.T, s server) {
	w, stop := start(t, s, istio.Config{Revision: "canary"})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	label := func() (string, bool) {
		if o := s.get(t, istio.EnvoyFilter, root, fireName); o != nil {
			l, ok := o.GetLabels()["istio.io/rev"]
			return l, ok
		}
		return "", false
	}
	eventually(t, "the label", func() bool { l, _ := label(); return l == "canary" })
	stop()
	w, _ = start(t, s, istio.Config{})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	eventually(t, "no label", func() bool { _, labelled := label(); return !labelled })
}

func removeLeavesNothing(t *testing.T, s server) {
	s.create(t, istio.TrafficExtension, extension())
	w, stop := start(t, s, istio.Config{})
	w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}})
	eventually(t, "the function's object", func() bool { return s.get(t, istio.EnvoyFilter, root, fireName) != nil })
	stop()
	if err := w.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.get(t, istio.EnvoyFilter, root, fireName) != nil || s.get(t, istio.TrafficExtension, root, istio.PrefetchName) == nil {
		t.Error("the function's object is there, or the chart's is not")
	}
}

func wasmPluginIsConfigured(t *testing.T, s server) {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"url": "oci://example.com/prefetch:1"}}}
	o.SetGroupVersionKind(istio.WasmPlugin.GVK)
	o.SetNamespace(root)
	o.SetName(istio.PrefetchName)
	s.create(t, istio.WasmPlugin, o)
	w, _ := start(t, s, istio.Config{})
	w.Set(istio.Desired{PluginConfig: config(t)})
	eventually(t, "the configuration", func() bool {
		return hints(s.get(t, istio.WasmPlugin, root, istio.PrefetchName), "spec", "pluginConfig") == ours
	})
}
