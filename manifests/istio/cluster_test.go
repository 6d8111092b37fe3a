//go:build cluster

package istio_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/istio"
)

func istioctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(apiservertest.Binary(t, "istioctl"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("istioctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// generated writes what the control plane would for two functions.
func generated(t *testing.T) string {
	t.Helper()
	var text []string
	for _, f := range []istio.Function{
		{
			Name:    "default/fire",
			Service: istio.Service{Host: "fire.default.svc.cluster.local", Port: 80, Endpoints: "default/fire:80"},
		},
		{
			Name: "video/thumbs",
			Service: istio.Service{
				Host: "thumbs-00001.video.svc.cluster.local", Port: 80, Endpoints: "video/thumbs:80",
			},
		},
	} {
		o, err := istio.Object(istio.Config{Revision: "canary"}, f)
		if err != nil {
			t.Fatal(err)
		}
		one, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, string(one))
	}
	file := filepath.Join(t.TempDir(), "generated.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(text, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestIstioAcceptsEverythingShipped(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files = append(slices.DeleteFunc(files, func(f string) bool { return f == "gateway-chart.yaml" }), generated(t)) // which has a chart's values
	var objects []string
	for _, f := range files {
		if out := istioctl(t, "validate", "-f", f); strings.Contains(strings.ToLower(out), "unknown field") {
			t.Error(out)
		}
		if f != "install.yaml" { // which is no object of a cluster's
			objects = append(objects, f)
		}
	}
	if out := istioctl(t, append([]string{"analyze", "--use-kube=false", "--all-namespaces"}, objects...)...); !strings.Contains(out, "No validation issues found") {
		t.Error(out)
	}
}

func TestTheOverlayOpensTheGateway(t *testing.T) {
	type pod struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			Volumes []struct {
				Name     string
				HostPath *struct{ Path, Type string }
			}
			Containers []struct {
				Name         string
				Env          []struct{ Name, Value string }
				VolumeMounts []struct {
					Name, MountPath string
					ReadOnly        bool
				}
			}
		}
	}
	type object struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
		Spec     struct {
			Selector struct{ MatchLabels map[string]string }
			Template pod
		}
	}
	var gateways, meshes int
	for doc := range strings.SplitSeq(istioctl(t, "manifest", "generate", "-f", "install.yaml"), "\n---") {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind != "Deployment" && kind.Kind != "ConfigMap" {
			continue
		}
		var o object
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		switch {
		case o.Kind == "Deployment" && o.Metadata.Name == "istio-ingressgateway":
			gateways++
			p := o.Spec.Template
			if p.Metadata.Labels["headstart.dev/gateway"] != "true" || o.Spec.Selector.MatchLabels["headstart.dev/gateway"] != "" {
				t.Errorf("labels %v, selector %v", p.Metadata.Labels, o.Spec.Selector.MatchLabels)
			}
			v := p.Spec.Volumes[len(p.Spec.Volumes)-1]
			if v.HostPath == nil || v.HostPath.Path != "/run/headstart/gateway" || v.HostPath.Type != "DirectoryOrCreate" {
				t.Errorf("volume %+v", v)
			}
			c := p.Spec.Containers[0]
			if m := c.VolumeMounts[len(c.VolumeMounts)-1]; c.Name != "istio-proxy" || m.Name != v.Name || m.MountPath != v.HostPath.Path || !m.ReadOnly {
				t.Errorf("mount %+v of %s", m, c.Name)
			}
			set := false
			for _, e := range c.Env {
				set = set || e.Name == "ISTIO_META_"+istio.MetadataKey && e.Value == istio.MetadataValue
			}
			if !set {
				t.Errorf("environment %v", c.Env)
			}
		case o.Kind == "ConfigMap" && strings.Contains(o.Data["mesh"], "name: headstart"):
			meshes++
		}
	}
	if gateways != 1 || meshes != 1 {
		t.Errorf("%d gateways, %d meshes with our provider", gateways, meshes)
	}
}
