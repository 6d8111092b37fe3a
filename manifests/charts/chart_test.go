// Package charts_test keeps the chart true to what it is made of.
package charts_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "copy the files instead of comparing them")

// Helm packs only what is below the chart, so the mesh's objects are there a second time.
func TestTheMeshsObjectsAreUpToDate(t *testing.T) {
	for _, name := range []string{"gateways.yaml", "telemetry.yaml", "traffic-extension.yaml", "wasm-plugin.yaml"} {
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
