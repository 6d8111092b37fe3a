package istio_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// service is a function of Kubernetes with an input.
func service(name, input string) platform.Function {
	return platform.Function{Name: "default/" + name, Service: name + ".default.svc.cluster.local", ServicePort: 80,
		Policy: policy.Policy{Input: input}}
}

// prefetch is what the objects have for the filter, by function.
func prefetch(t *testing.T, functions ...platform.Function) map[string]string {
	t.Helper()
	objects, err := objectsOf(istio.Config{}, istio.Functions(platform.State{Functions: functions}))
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, o := range objects {
		var object struct {
			Spec struct {
				ConfigPatches []struct {
					Patch struct {
						Value struct {
							Metadata struct {
								Filters map[string]map[string]string `json:"filter_metadata"`
							}
						}
					}
				} `json:"configPatches"`
			}
		}
		data, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &object); err != nil {
			t.Fatal(err)
		}
		m := object.Spec.ConfigPatches[0].Patch.Value.Metadata.Filters["headstart"]
		texts[m["function"]] = m["prefetch"]
	}
	return texts
}

func TestAFunctionsOwnObjectHasItsTemplates(t *testing.T) {
	video := service("video", "s3://videos/{header.x-key}")
	video.Policy.Named = map[string]string{"mask": "s3://masks/{path.id}"}
	video.Policy.Path = "/{id}"
	body := service("body", "")
	body.Policy.BodyInput = true // hot, it is sent to its instances as if it had no input
	got := prefetch(t, video, service("thumbs", ""), body)
	if got["default/thumbs"] != "" || got["default/body"] != "" || len(got) != 3 {
		t.Errorf("functions without a stored input: %q", got)
	}
	f, err := filterapi.ParseFunction([]byte(got["default/video"]))
	if err != nil {
		t.Fatal(err)
	}
	templates := video.Policy.Templates()
	want := &filterapi.Function{Name: "default/video", Input: templates[""], Inputs: templates.Named()}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An observed function's templates are where a filter that does not know of the mode finds no input.
func TestAnObservedFunctionsObjectHasItsTemplatesAlone(t *testing.T) {
	video := service("video", "s3://videos/{header.x-key}")
	video.Policy.Observe = true
	video.Policy.Named = map[string]string{"mask": "s3://masks/{header.x-key}"}
	got := prefetch(t, video)
	if len(got) != 1 || got[""] == "" { // what the route filter knows functions by is not there
		t.Fatalf("%q", got)
	}
	f, err := filterapi.ParseFunction([]byte(got[""]))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&filterapi.Function{Name: "default/video", Observed: video.Policy.Templates()}, f); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// 3,000 Services of one namespace make neither the filter's object nor anybody else's larger: etcd takes
// 1.5 MiB.
func TestAttackManyServicesDoNotGrowOneObject(t *testing.T) {
	config, err := istio.PluginConfig()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := filterapi.ParseConfig(config); err != nil || got.IngressEndpoint != istio.IngressSocket || len(config) > 200 {
		t.Errorf("the filter's configuration is %s, %v", config, err)
	}
	functions := []platform.Function{service("victim", "s3://videos/{header.x-key}")}
	alone, err := objectsOf(istio.Config{}, istio.Functions(platform.State{Functions: functions}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		functions = append(functions, service(fmt.Sprintf("zz%d", i), "s3://videos/{header.x-key}"))
	}
	all, err := objectsOf(istio.Config{}, istio.Functions(platform.State{Functions: functions}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(alone[0].Object, all[0].Object); diff != "" {
		t.Errorf("the victim's object (-alone +with others):\n%s", diff)
	}
	for _, o := range all {
		if data, err := o.MarshalJSON(); err != nil || len(data) > 8<<10 {
			t.Fatalf("%s has %d bytes, %v", o.GetName(), len(data), err)
		}
	}
}
