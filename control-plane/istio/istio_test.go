package istio_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protojson"
	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

var update = flag.Bool("update", false, "write the expected objects anew")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWriterOnAFakeServer(t *testing.T) {
	runSuite(t, func(t *testing.T, body func(t *testing.T, s server)) {
		synctest.Test(t, func(t *testing.T) { body(t, newFake()) })
	})
}

// Instances come and go all the time, and each time the mesh is said again.
func TestAnUnchangedMeshIsNeitherWrittenNorLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.create(t, istio.TrafficExtension, extension())
		w, stop := start(t, f, istio.Config{})
		d := istio.Desired{Functions: []istio.Function{fire(fireHost)}, PluginConfig: config(t)}
		w.Set(d)
		eventually(t, "a status", func() bool { return w.Status().Objects == 1 })
		looked, same := f.looks(), 0
		eventually(t, "an end to looks at its own writes", func() bool {
			if n := f.looks(); n != looked {
				looked, same = n, 0
			}
			same++
			return same > 5
		})
		for range 5 {
			w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}, PluginConfig: config(t)})
			synctest.Wait()
		}
		stop()
		if n := f.looks() - looked; n != 0 {
			t.Errorf("%d more looks at the API server", n)
		}
		if f.applied != 2 {
			t.Errorf("%d writes, expected one per object", f.applied)
		}
	})
}

// slow takes its time for each write.
type slow struct{ *fake }

func (s slow) api() istio.API { return s }

func (s slow) Apply(ctx context.Context, k istio.Kind, o *unstructured.Unstructured, force bool) error {
	time.Sleep(20 * time.Millisecond)
	return s.fake.Apply(ctx, k, o, force)
}

// One namespace makes hundreds of functions, which take six seconds to write. Another one's change does not wait
// for them, and in the end all are there.
func TestACrowdKeepsNobodysChangeWaiting(t *testing.T) {
	const crowd = 300
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.create(t, istio.TrafficExtension, extension())
		w, _ := start(t, slow{f}, istio.Config{})
		w.Set(istio.Desired{Functions: []istio.Function{fire(fireHost)}, PluginConfig: config(t)})
		eventually(t, "the function", func() bool { return w.Status().Objects == 1 })
		var all []istio.Function
		for n := range crowd {
			one := fire(fireHost)
			one.Name = fmt.Sprintf("crowd/f%d", n) // before default by their names
			all = append(all, one)
		}
		w.Set(istio.Desired{Functions: slices.Concat(all, []istio.Function{fire(fireHost)}), PluginConfig: config(t)})
		time.Sleep(time.Second)
		const host = "other.default.svc.cluster.local"
		w.Set(istio.Desired{Functions: slices.Concat(all, []istio.Function{fire(host)}), PluginConfig: config(t)})
		began := time.Now()
		eventually(t, "the change", func() bool {
			return strings.Contains(clusterName(f.get(t, istio.EnvoyFilter, root, fireName)), host)
		})
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("the change took %v", took)
		}
		if n := f.written(); n > crowd/2 {
			t.Errorf("the crowd was through before the change: %d writes", n)
		}
		eventually(t, "the crowd", func() bool { return w.Status().Objects == crowd+1 })
	})
}

// cases are the functions whose objects lie in testdata.
var cases = map[string]struct {
	cfg istio.Config
	f   istio.Function
}{
	"service":  {istio.Config{}, fire(fireHost)},
	"root":     {istio.Config{RootNamespace: "mesh"}, fire(fireHost)},
	"revision": {istio.Config{Revision: "canary"}, fire(fireHost)},
	"observed": {istio.Config{}, watched(fireHost)},
}

// watched is a function that is only observed.
func watched(host string) istio.Function {
	f := fire(host)
	f.Inputs, f.Observed = nil, reference.Inputs{"": "s3://videos/{header.x-key}"}
	return f
}

// objectsOf are the EnvoyFilters of some functions.
func objectsOf(cfg istio.Config, functions []istio.Function) (all []*unstructured.Unstructured, err error) {
	for _, f := range functions {
		o, err := istio.Object(cfg, f)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

func TestObjects(t *testing.T) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := objectsOf(c.cfg, []istio.Function{c.f})
			if err != nil || len(objects) != 1 {
				t.Fatal(objects, err)
			}
			got, err := yaml.Marshal(objects[0].Object)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("go test -update if this is meant:\n%s", d)
			}
		})
	}
}

// Istio drops, and Envoy refuses, what it does not know: both types are strict here.
func TestObjectsAreWhatIstioAndEnvoyRead(t *testing.T) {
	objects, err := objectsOf(istio.Config{}, []istio.Function{fire(fireHost)})
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(objects[0].Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var spec networking.EnvoyFilter
	if err := protojson.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	patch := spec.ConfigPatches[0]
	if m := patch.Match.Proxy.Metadata; m["HEADSTART"] != "true" {
		t.Errorf("applies to gateways without our sockets: %v", m)
	}
	value, err := protojson.Marshal(patch.Patch.Value)
	if err != nil {
		t.Fatal(err)
	}
	var c cluster.Cluster
	if err := protojson.Unmarshal(value, &c); err != nil {
		t.Fatal(err)
	}
	c.Name = patch.Match.GetCluster().GetName()
	if err := c.ValidateAll(); err != nil {
		t.Error(err)
	}
	if c.GetTransportSocket() != nil || c.TypedExtensionProtocolOptions != nil || c.CircuitBreakers != nil {
		t.Error("replaces what is Istio's to say")
	}
}

func TestNamesAreValidAndDistinct(t *testing.T) {
	functions := []string{"a-b/c", "a/b-c", "a/b", "default/fire", string(slices.Repeat([]byte("n"), 63)) + "/" + string(slices.Repeat([]byte("f"), 63))}
	seen := map[string]string{}
	for _, f := range functions {
		name := istio.ObjectName(f)
		if other, taken := seen[name]; taken {
			t.Errorf("%s and %s are both %s", f, other, name)
		}
		seen[name] = f
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestFunctionsAreThoseOfTheRegistry(t *testing.T) {
	st := platform.State{Functions: []platform.Function{
		{Name: "default/fire", Service: fireHost, ServicePort: 80, Port: 8080},
		{Name: "default/local"},
	}}
	got := istio.Functions(st)
	if d := cmp.Diff([]istio.Function{fire(fireHost)}, got); d != "" {
		t.Error(d)
	}
}
