package affected_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/affected"
)

var suites = []affected.Suite{
	{Package: "control-plane/istio", Of: map[string]bool{"control-plane/istio": true, "control-plane/xds": true}},
	{Package: "e2e/cluster/journey", World: true, Of: map[string]bool{"e2e/cluster/journey": true, "e2e/cluster/world": true, "e2e/cluster": true,
		"control-plane/istio": true, "control-plane/xds": true, "shim/sandboxes": true, "shim/cmd/headstart-node": true}},
	{Package: "manifests/charts", Of: map[string]bool{"manifests/charts": true}},
}

func TestWhatAChangeTouches(t *testing.T) {
	const istio, journey, charts = "control-plane/istio", "e2e/cluster/journey", "manifests/charts"
	for file, want := range map[string][]string{
		"shim/sandboxes/pod.go":                               {journey},
		"shim/cmd/headstart-node/run.go":                      {journey},
		"control-plane/xds/weights/row.go":                    nil,
		"control-plane/xds/mesh.go":                           {istio, journey},
		"control-plane/xds/testdata/bootstrap.json":           {istio, journey},
		"control-plane/istio/cluster_test.go":                 {istio},
		"control-plane/xds/mesh_test.go":                      nil,
		"e2e/cluster/journey/journey_test.go":                 {journey},
		"e2e/cluster/world/world.go":                          {journey},
		"e2e/cluster/build.sh":                                {istio, journey, charts},
		"e2e/cluster/tools/istio/go.mod":                      {istio, journey, charts},
		"e2e/cluster/mesh/vanilla.yaml":                       {istio, journey, charts},
		"manifests/charts/headstart/templates/uninstall.yaml": {journey, charts},
		"manifests/charts/install_cluster_test.go":            {charts},
		"filters/prefetch/filter.go":                          {journey},
		"go.mod":                                              {istio, journey, charts},
		"Makefile":                                            {istio, journey, charts},
		"e2e/setup.sh":                                        {istio, journey, charts},
		"e2e/soak/plan/plan.go":                               nil,
		"docs/architecture.md":                                nil,
		"docs/results/fig7.svg":                               nil,
		"README.md":                                           nil,
		"manifests/examples/README.md":                        nil,
		"LICENSE":                                             nil,
	} {
		var got []string
		for _, s := range affected.By([]string{"README.md", file}, suites) {
			got = append(got, s.Package)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s touches %v, want %v", file, got, want)
		}
	}
	if all := affected.By(
		[]string{
			"shim/sandboxes/pod.go", "control-plane/istio/cluster_test.go", "manifests/charts/install_cluster_test.go",
		},
		suites,
	); len(all) != len(suites) {
		t.Errorf("three files touch %v", all)
	}
	if none := affected.By(nil, suites); len(none) != 0 {
		t.Errorf("nothing touches %v", none)
	}
}

func TestTheSmokeTest(t *testing.T) {
	smoke := []affected.Suite{{Package: "e2e/cluster/journey", Always: true}}
	for file, want := range map[string]int{"e2e/soak/plan/plan.go": 1, "control-plane/xds/mesh_test.go": 1, "docs/architecture.md": 0, "README.md": 0} {
		if got := affected.By([]string{file}, smoke); len(got) != want {
			t.Errorf("%s touches %v", file, got)
		}
	}
}

func TestWhatThereIsTimeFor(t *testing.T) {
	all := []affected.Suite{{Package: "a", Takes: 4}, {Package: "b", Takes: 7}, {Package: "c", Takes: 1}}
	for within, want := range map[time.Duration][]string{12: {"a", "b", "c"}, 11: {"a", "b"}, 10: {"a", "c"}, 3: {"c"}, 0: nil} {
		fit, left := affected.Fit(all, within)
		var got []string
		for _, s := range fit {
			got = append(got, s.Package)
		}
		if !slices.Equal(got, want) || len(fit)+len(left) != len(all) {
			t.Errorf("within %d: %v, and not %v", within, got, left)
		}
	}
}
