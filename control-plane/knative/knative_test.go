package knative_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/knative"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

var allowed = stores.Stores{
	{Name: "default", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"models"}},
	{Name: "archive", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"videos"}},
}

func read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func parse(text string) ([]platform.Function, error) {
	return knative.Parse(strings.NewReader(text), allowed, nil)
}

func TestParseEveryField(t *testing.T) {
	got, err := parse(read(t, "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	want := []platform.Function{{
		Name:    "city/fire",
		Hosts:   []string{"fire.city.headstart.local", "fire.city"},
		Image:   "registry.example.com/video/fire:1.2",
		Command: []string{"/fire"},
		Args:    []string{"--threshold", "0.5", "$(date)"},
		Env: map[string]string{
			"MODE": "fast", "EMPTY": "",
			"PORT": "9000", "K_SERVICE": "fire", "K_REVISION": "fire-00001", "K_CONFIGURATION": "fire",
		},
		Port:           9000,
		ProbePath:      "/healthz",
		RequestTimeout: 2 * time.Minute,
		CPULimitMillis: 1500,
		MemoryLimit:    256 << 20,
		Node:           "edge-1",
		Policy: policy.Policy{
			Input: "s3://videos/{header.x-key}", Store: "archive", InputLimit: 256 << 20,
			ScaleToZero: 5 * time.Minute, ReadyTimeout: 30 * time.Second, Routing: policy.RoutingBalanced,
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestParseDefaults(t *testing.T) {
	got, err := parse(read(t, "small.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	function := func(name, probe string) platform.Function {
		return platform.Function{
			Name: "default/" + name, Hosts: []string{name + ".default.headstart.local", name + ".default"},
			Image: "docker.io/library/hello:latest", Port: 8080, ProbePath: probe, RequestTimeout: 300 * time.Second,
			Policy: policy.Default(),
			Env:    map[string]string{"PORT": "8080", "K_SERVICE": name, "K_REVISION": name + "-00001", "K_CONFIGURATION": name},
		}
	}
	want := []platform.Function{function("hello", ""), function("json", "/")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// An instance takes one request at a time if the manifest says so, or if it may run ahead. Then max-scale counts.
func TestOneRequestAtATime(t *testing.T) {
	const none, one, three = "containerConcurrency: 0", "containerConcurrency: 1", `autoscaling.knative.dev/max-scale: "3"`
	for name, c := range map[string]struct {
		replace []string
		one     bool
		most    int32
	}{
		"no limit":           {nil, false, 0},
		"one, of three":      {[]string{none, one}, true, 3},
		"one":                {[]string{none, one, three, ""}, true, 10},
		"as many as Knative": {[]string{none, one, three, `autoscaling.knative.dev/max-scale: "0"`}, true, 10},
		"it runs ahead":      {[]string{"headstart.dev/store: archive", "headstart.dev/store: archive\n    headstart.dev/speculation: allowed"}, true, 3},
		"it never does":      {[]string{"headstart.dev/store: archive", "headstart.dev/store: archive\n    headstart.dev/speculation: never"}, false, 0},
	} {
		text := read(t, "full.yaml")
		if c.replace != nil {
			text = strings.NewReplacer(c.replace...).Replace(text)
		}
		got, err := parse(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got[0].OneAtATime != c.one || got[0].MaxInstances != c.most || got[0].Policy.RunsAhead != (name == "it runs ahead") {
			t.Errorf("%s: one at a time %t, of %d", name, got[0].OneAtATime, got[0].MaxInstances)
		}
	}
}

// A cluster takes nulls for absent fields, and generators write them.
func TestNullIsAbsent(t *testing.T) {
	text := strings.NewReplacer("timeoutSeconds: 120", "timeoutSeconds: null", "containerConcurrency: 0", "containerConcurrency:").Replace(read(t, "full.yaml"))
	got, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if want := 300 * time.Second; got[0].RequestTimeout != want {
		t.Errorf("timeout %s, want %s", got[0].RequestTimeout, want)
	}
}

func TestProblemsOfAllDocumentsComeTogether(t *testing.T) {
	broken := strings.NewReplacer("city", "town", "timeoutSeconds: 120", "timeoutSeconds: 0", "memory: 256Mi", "memory: 256m").Replace(read(t, "full.yaml"))
	_, err := parse(read(t, "full.yaml") + "---\n" + broken + "---\na: [\n---\n" + read(t, "full.yaml"))
	want := strings.Join([]string{
		`document 2, line 83: function town/fire: spec.template.spec.timeoutSeconds: "0" is out of range; use 1 to 600`,
		`document 2, line 108: function town/fire: spec.template.spec.containers[0].resources.limits.memory: "256m" is not a whole number of bytes; use 6Mi to 16Ti`,
		`document 3, line 113: not a manifest: did not find expected node content`,
		`document 4, line 119: function city/fire: metadata.name: "city/fire" is the function of document 1 too; give each function a name of its own`,
	}, "\n")
	if err == nil {
		t.Fatal("accepted")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	var one *knative.Error
	var fieldErr *field.Error
	if !errors.As(err, &one) || one.Line != 83 || !errors.As(err, &fieldErr) || fieldErr.Field != "spec.template.spec.timeoutSeconds" {
		t.Errorf("errors.As finds %v and %v", one, fieldErr)
	}
}

func TestWhatIsNoManifest(t *testing.T) {
	service := read(t, "full.yaml")
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", "no function in the manifest; it needs a Service of serving.knative.dev/v1, or a Workflow of headstart.dev/v1alpha1"},
		{"only comments", "# a\n---\n# b\n---\n", "no function in the manifest; it needs a Service of serving.knative.dev/v1, or a Workflow of headstart.dev/v1alpha1"},
		{"scalar", "hello", "document 1, line 1: not a manifest: it is not a mapping"},
		{"list", "\n- a\n", "document 1, line 2: not a manifest: it is not a mapping"},
		{"tab", "a:\n\tb: 1", "document 1, line 2: not a manifest: a tab indents this line; indent with spaces"},
		{"no tab", "a:\n  @b: 1", "document 1, line 2: not a manifest: found character that cannot start any token"},
		{"not UTF-8", "a: \xff", "document 1, line 1: not a manifest: invalid leading UTF-8 octet"},
		{"anchor", "a: &x 1\nb: 2", "document 1, line 1: not a manifest: anchors, aliases and tags are not supported; write the value out"},
		{"alias", "a: &x [1]\nb: *x", "document 1, line 1: not a manifest: anchors, aliases and tags are not supported; write the value out"},
		{"tag", "a: 1\nb: !!binary aGk=", "document 1, line 2: not a manifest: anchors, aliases and tags are not supported; write the value out"},
		{"old line breaks", "a: 1\r---\rb: 2\r", "document 1, line 2: not a manifest: a second one follows without a --- line of its own"},
		{"large document", "# a\n---\nb: " + strings.Repeat("x", 1<<20), "document 1, line 2: not a manifest: it is larger than 1048576 bytes"},
		{"large stream", strings.Repeat("# 3456789\n", 1<<21), "manifests are larger than 16777216 bytes; apply them in parts"},
		{"many documents", strings.Repeat("---\n{}\n", 1001), "more than 1000 documents; apply them in parts"},
		{"other kind", strings.Replace(service, "kind: Service", "kind: ConfigMap", 1), `document 1, line 3: kind: "ConfigMap" is not supported by the embedded platform; use Service of serving.knative.dev/v1, or run on Kubernetes`},
		{"other version", strings.Replace(service, "knative.dev/v1", "knative.dev/v1beta1", 1), `document 1, line 2: apiVersion: "serving.knative.dev/v1beta1" is not supported by the embedded platform; use Service of serving.knative.dev/v1, or run on Kubernetes`},
		{"nothing of it", "a: 1", "document 1, line 1: apiVersion: is missing; write serving.knative.dev/v1\ndocument 1, line 1: kind: is missing; write Service"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(tt.text)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A store that is granted to some namespaces does not exist for others.
func TestStoresCountForTheirNamespacesOnly(t *testing.T) {
	full := read(t, "full.yaml")
	for namespace, want := range map[string]bool{"city": true, "shop": false} {
		granted := append(stores.Stores{}, allowed...)
		granted[1].Namespaces = []string{"city"}
		_, err := knative.Parse(strings.NewReader(strings.Replace(full, "namespace: city", "namespace: "+namespace, 1)), granted, nil)
		if (err == nil) != want || !want && !strings.Contains(err.Error(), "headstart.dev/store") {
			t.Errorf("of namespace %s: %v", namespace, err)
		}
	}
}

func TestABrokenReaderIsNoEmptyManifest(t *testing.T) {
	lost := errors.New("connection lost")
	if _, err := knative.Parse(iotest.ErrReader(lost), allowed, nil); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

func TestMessagesStayBounded(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata:\n  name: a\n")
	for i := range 50_000 {
		fmt.Fprintf(&text, "x%d: 1\n", i)
	}
	_, err := knative.Parse(&text, allowed, nil)
	var errs knative.Errors
	if !errors.As(err, &errs) || len(errs) > 100 || len(err.Error()) > 16<<10 {
		t.Errorf("%d problems in %d bytes", len(errs), len(err.Error()))
	}
}

// What the reference shows has to work as it stands there.
func TestDocumentedExamples(t *testing.T) {
	listed, err := stores.Parse([]byte(example(t, "stores.md")))
	if err != nil {
		t.Fatal(err)
	}
	functions, err := knative.Parse(strings.NewReader(example(t, "knative-service.md")), listed, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := functions[0].Name; got != "default/fire" {
		t.Errorf("the function is %s", got)
	}
}

// example returns the first YAML block of a page of the reference.
func example(t *testing.T, page string) string {
	t.Helper()
	_, after, found := strings.Cut(read(t, "../../../docs/reference/"+page), "```yaml\n")
	block, _, closed := strings.Cut(after, "```")
	if !found || !closed {
		t.Fatalf("%s has no YAML block", page)
	}
	return block
}
