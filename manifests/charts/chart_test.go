// Package charts_test keeps the chart true to what it is made of.
package charts_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

var update = flag.Bool("update", false, "copy the files instead of comparing them")

// Helm packs only what is below the chart, so the mesh's objects are there a second time.
func TestTheMeshsObjectsAreUpToDate(t *testing.T) {
	for _, name := range []string{"gateways.yaml", "keys.yaml", "telemetry.yaml", "traffic-extension.yaml", "wasm-plugin.yaml"} {
		want, err := os.ReadFile(filepath.Join("..", "istio", name))
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join("headstart", "files", "istio", name)
		if *update {
			if err := os.WriteFile(copied, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(copied)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Errorf("make generate copies manifests/istio/%s (-want +chart):\n%s", name, d)
		}
	}
}

// Every value is in the page, and the page has no other.
func TestValuesAreDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("headstart", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reference/chart.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z]+[A-Za-z.`, ]*) \\| .* \\|.*\\|$").FindAllStringSubmatch(string(page), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			documented[strings.Trim(name, "`")] = true
		}
	}
	// These are documented as a whole.
	whole := regexp.MustCompile(`^(stores|destinations|image\.(controlplane|node|installer|prefetch)|.*\.(resources|nodeSelector|tolerations|affinity|labels|podLabels|podAnnotations|annotations)|labels)$`)
	var visit func(path string, v any)
	visit = func(path string, v any) {
		if fields, ok := v.(map[string]any); ok && !whole.MatchString(path) {
			for name, field := range fields {
				visit(strings.TrimPrefix(path+"."+name, "."), field)
			}
			return
		}
		if !documented[path] {
			t.Errorf("docs/reference/chart.md lacks %s", path)
		}
		delete(documented, path)
	}
	visit("", values)
	for name := range documented {
		if strings.Contains(name, ".") {
			t.Errorf("docs/reference/chart.md has %s, which is no value", name)
		}
	}
}

// The schema of the values takes what the list of stores takes.
func TestTheSchemaKnowsWhatTheListTakes(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("headstart", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for field, values := range map[string][]string{"write": stores.Writes, "credentials": stores.Credentials} {
		said := regexp.MustCompile(`"` + field + `": \{.*"enum": \[(.*?)\]`).FindSubmatch(text)
		if want := `"` + strings.Join(values, `", "`) + `"`; said == nil || string(said[1]) != want {
			t.Errorf("the schema has %s of %s, and not %s", said, field, want)
		}
	}
}
