package spec

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// FuzzApply holds for every specification and description: either an error, or a
// specification that differs only below /headstart/ and in HEADSTART_ variables.
func FuzzApply(f *testing.F) {
	f.Add([]byte(`{"process":{"env":["A=1","HEADSTART_X=0"]},"mounts":[{"destination":"/proc"}]}`), "/s/a", "/headstart/input", "HEADSTART_X", "1")
	f.Add([]byte(`{"process":{},"mounts":null,"root":{"path":"rootfs"}}`), "/s/a", "/headstart/../etc", "PATH", "/x")
	f.Add([]byte(`{"process":{"Env":["HEADSTART_X=0"]},"Mounts":[]}`), "/s/a/b", "/headstart/a\n", "HEADSTART_", "")
	f.Fuzz(func(t *testing.T, config []byte, source, destination, name, val string) {
		d := &nodeapi.DescribeResponse{
			Mounts: []*nodeapi.Mount{{Source: source, Destination: destination, ReadOnly: true}},
			Env:    map[string]string{name: val},
		}
		got, err := Apply(config, own, d)
		if err != nil {
			return
		}
		if path.Dir(path.Clean(destination)) != "/headstart" || !strings.HasPrefix(name, "HEADSTART_") {
			t.Fatalf("accepted mount %q, variable %q", destination, name)
		}
		if !strings.HasPrefix(source, "/s/") && !strings.HasPrefix(source, "/run/headstart/") || path.Clean(source) != source {
			t.Fatalf("accepted %q, which is not the daemon's", source)
		}
		if path.Base(source) != "a" && path.Base(path.Dir(source)) != "a" {
			t.Fatalf("accepted %q of another sandbox", source)
		}
		if diff := cmp.Diff(others(value(t, config)), others(value(t, got)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("changed what is not ours (-before +after):\n%s", diff)
		}
		again, err := Apply(got, own, d)
		if err != nil {
			t.Fatalf("applying again: %v", err)
		}
		if diff := cmp.Diff(value(t, got), value(t, again)); diff != "" {
			t.Errorf("applied twice (-once +twice):\n%s", diff)
		}
	})
}

// FuzzApplyVolumes holds for every mount of a specification: it stays as it is, or is the pod's own emptyDir.
func FuzzApplyVolumes(f *testing.F) {
	f.Add(emptyDir+"models", "/models", "bind")
	f.Add(emptyDir+"models/../../kubernetes.io~secret/a", "/models", "bind")
	f.Add(emptyDir+"models", "/headstart/volumes/models/a", "bind")
	f.Fuzz(func(t *testing.T, source, destination, kind string) {
		config, err := json.Marshal(map[string]any{"mounts": []mount{{Source: source, Destination: destination, Type: kind}}})
		if err != nil {
			return
		}
		got, err := Apply(config, withVolumes, mounted(tree, "models"))
		if err != nil || strings.HasSuffix(source, emptyDir+"models") && kind == "bind" && path.Clean(source) == source {
			return
		}
		before := value(t, config).(map[string]any)["mounts"].([]any)[0]
		if d := cmp.Diff(before, value(t, got).(map[string]any)["mounts"].([]any)[0]); d != "" {
			if len(value(t, got).(map[string]any)["mounts"].([]any)) > 1 {
				t.Errorf("%q at %q is replaced:\n%s", source, destination, d)
			}
		}
	})
}

// others is a specification's value without all that Apply may change.
func others(v any) any {
	spec := v.(map[string]any)
	mounts, _ := spec["mounts"].([]any)
	spec["mounts"] = slices.DeleteFunc(mounts, func(m any) bool {
		fields, _ := m.(map[string]any)
		destination, _ := fields["destination"].(string)
		return strings.HasPrefix(path.Clean(destination), "/headstart/")
	})
	process := spec["process"].(map[string]any)
	env, _ := process["env"].([]any)
	process["env"] = slices.DeleteFunc(env, func(e any) bool {
		variable, _ := e.(string)
		return strings.HasPrefix(variable, "HEADSTART_")
	})
	return spec
}

// FuzzRead holds for every file: it is taken or refused, and a pod is named wholly or not
// at all.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"annotations":{"io.kubernetes.cri.container-type":"sandbox"}}`))
	f.Add([]byte(`{"annotations":{"io.kubernetes.cri.sandbox-namespace":"a","io.kubernetes.cri.sandbox-name":"b","io.kubernetes.cri.sandbox-uid":"c"}}`))
	f.Add([]byte(`{"linux":{"cgroupsPath":"a.slice:b:c"}}`))
	f.Add([]byte(`{"annotations":{"headstart.dev/volumes":"models=s3://models/a/","headstart.dev/volumes-late":"start"}}`))
	f.Add([]byte(`{"annotations":[]}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		facts, err := Read(config)
		if err != nil && (facts.Pause || facts.Pod != nil || facts.SystemdCgroup) {
			t.Errorf("both %+v and an error: %v", facts, err)
		}
		if p := facts.Pod; p != nil && (p.GetNamespace() == "" || p.GetName() == "" || p.GetUid() == "") {
			t.Errorf("half a pod: %v", p)
		}
	})
}
