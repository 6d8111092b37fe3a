//go:build integration

package local

import (
	"fmt"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// cloud is what the status says of the node, once its daemon has said what it keeps.
func cloud(t *testing.T) (node admin.Node) {
	t.Helper()
	eventually(t, "what the node keeps", func() error {
		s, err := bed.Client().Status(t.Context())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(s.Nodes, func(n admin.Node) bool { return n.Name == testbed.Cloud && n.Cache != nil })
		if i < 0 {
			return fmt.Errorf("node %s does not say it", testbed.Cloud)
		}
		node = s.Nodes[i]
		return nil
	})
	return node
}

// A request that comes to the edge is answered where the function's volume is.
func TestAFunctionStartsWhereItsVolumeIs(t *testing.T) {
	put(t, "placed/model", 64<<20) // half a second, more than the way to the other node
	prefix := "s3://" + testbed.Bucket + "/placed/"
	deploy(t, testbed.Function{Name: "placed", Template: map[string]string{
		"headstart.dev/volumes": "models=" + prefix, "headstart.dev/store": testbed.Store}})
	eventually(t, "instances of other tests", func() error {
		if n := cloud(t); n.Instances > 0 {
			return fmt.Errorf("%d are left", n.Instances)
		}
		return nil
	})
	before := cloud(t).Cache.Volumes
	warmed, err := bed.Client().Cache(t.Context(), admin.CacheQuery{
		Verb: "warm", Node: testbed.Cloud, Namespace: "default", Store: testbed.Store, Reference: prefix})
	if err != nil || len(warmed) != 1 || warmed[0].Problem != "" {
		t.Fatalf("warming: %+v, %v", warmed, err)
	}
	eventually(t, "the control plane's knowledge of the volume", func() error {
		if n := cloud(t).Cache.Volumes; n != before+1 {
			return fmt.Errorf("it knows of %d volumes, and of %d before", n, before)
		}
		return nil
	})
	call{node: testbed.Edge, function: "placed"}.ok(t)
	if in := function(t, "placed").Instances; len(in) != 1 || in[0].Node != testbed.Cloud {
		t.Errorf("instances: %+v", in)
	}
}
