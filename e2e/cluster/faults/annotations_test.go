package faults

import (
	"maps"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// What a cluster is to refuse is refused, in the words that are looked for there: a change of
// these words shows without a cluster, too.
func TestWrongAnnotationsAreWrong(t *testing.T) {
	allowed := stores.Stores{{Name: world.StoreName, Kind: "s3", Endpoint: "http://10.99.0.9:9000", Region: testbed.Region, Buckets: []string{testbed.Bucket}}}
	right := map[string]string{"headstart.dev/scale-to-zero": "10m", "headstart.dev/input": testbed.Input, "headstart.dev/store": world.StoreName}
	if _, err := policy.Parse(right, allowed); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range wrongAnnotations {
		given := maps.Clone(right)
		given[wrong.key] = wrong.value
		_, err := policy.Parse(given, allowed)
		if err == nil {
			t.Errorf("%s=%s is taken", wrong.key, wrong.value)
			continue
		}
		for _, part := range wrong.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the refusal of %s=%s does not say %s: %v", wrong.key, wrong.value, part, err)
			}
		}
	}
}
