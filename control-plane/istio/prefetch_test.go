package istio_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

func TestPluginConfig(t *testing.T) {
	video := platform.Function{
		Name: "default/video", Hosts: []string{"video.default.example.com", "video.default"},
		Policy: policy.Policy{Input: "s3://videos/{header.x-key}"},
	}
	thumbs := platform.Function{Name: "default/thumbs", Hosts: []string{"thumbs.default.example.com"}}
	clash := platform.Function{
		Name: "default/zebra", Hosts: []string{"zebra.default", video.Hosts[0]},
		// Hot, it is sent to its instances as if it had no input.
		Policy: policy.Policy{BodyInput: true},
	}
	shadow := platform.Function{Name: "default/zulu", Hosts: video.Hosts}
	data, err := istio.PluginConfig(platform.State{Functions: []platform.Function{shadow, clash, video, thumbs}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := filterapi.ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	want := &filterapi.Config{
		Version: filterapi.Version, HintCluster: "headstart-hints", IngressEndpoint: istio.IngressSocket,
		Functions: []filterapi.Function{
			{Name: "default/thumbs", Hosts: thumbs.Hosts},
			{Name: "default/video", Hosts: video.Hosts, Input: video.Policy.Input},
			{Name: "default/zebra", Hosts: []string{"zebra.default"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	data, err = istio.PluginConfig(platform.State{})
	if err != nil || !strings.Contains(string(data), `"functions":[]`) {
		t.Errorf("without functions: %s, %v", data, err)
	}
}
