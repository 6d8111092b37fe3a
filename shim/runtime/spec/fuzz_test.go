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

// FuzzApplyEndpoints holds for every environment and every description: either an error, or the program's environment
// differs in the variables of the endpoint and in those of Headstart only. A container with a proxy also has the
// address among those that go without it.
func FuzzApplyEndpoints(f *testing.F) {
	for _, seed := range []struct{ config, endpoint, variable, val, name string }{
		{`{"process":{"env":["PATH=/bin"]}}`, "s3", "AWS_ENDPOINT_URL_S3", "http://{address}", "HEADSTART_A"},
		{`{"process":{"env":["AWS_REGION=a","AWS_REGION="]}}`, "s3", "AWS_REGION", "{address", "HEADSTART_A"},
		{`{"process":{"env":["HTTP_PROXY=p","NO_PROXY=a, b,*"]}}`, "s3", "AWS_DEFAULT_REGION", "", "HEADSTART_A"},
		{`{"process":{"Env":["AWS_REGION=a","all_proxy=p"]}}`, "s3", "AWS_REGION", "b", "HEADSTART_A"},
		{`{"process":{"env":["LD_PRELOAD=/a.so"]}}`, "s3", "LD_PRELOAD", "/x.so", "AWS_REGION"},
		{`{"process":{"env":["A=1"]}}`, "s3\x00", "AWS_ACCESS_KEY_ID", "x\x00y", "NO_PROXY"},
	} {
		f.Add([]byte(seed.config), seed.endpoint, seed.variable, seed.val, seed.name, "1")
	}
	tells := []string{"AWS_ENDPOINT_URL_S3", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
		"AWS_REGION", "AWS_DEFAULT_REGION"}
	f.Fuzz(func(t *testing.T, config []byte, endpoint, variable, val, name, own string) {
		d := &nodeapi.DescribeResponse{Env: map[string]string{name: own},
			Endpoints: []*nodeapi.Endpoint{{Name: endpoint, Env: map[string]string{variable: val}}}}
		got, err := Apply(config, withS3, d)
		if err != nil {
			return
		}
		if endpoint != "s3" || !slices.Contains(tells, variable) || !strings.HasPrefix(name, "HEADSTART_") {
			t.Fatalf("accepted endpoint %q with variable %q, and variable %q", endpoint, variable, name)
		}
		before, after := value(t, config), value(t, got)
		has, now := lists(before), lists(after)
		proxied := slices.ContainsFunc([]string{"HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"},
			func(v string) bool { return has[v] != "" })
		for _, v := range []string{"NO_PROXY", "no_proxy"} {
			switch list := strings.Split(now[v], ","); {
			case !proxied && now[v] != has[v]:
				t.Errorf("%s is %q, was %q, and there is no proxy", v, now[v], has[v])
			case proxied && now[v] != "*" && !slices.Contains(list, "127.0.0.1"):
				t.Errorf("%s is %q, without the address", v, now[v])
			case proxied && !strings.HasPrefix(now[v], has[v]):
				t.Errorf("%s is %q, was %q", v, now[v], has[v])
			}
		}
		// What is left is as it was.
		kept := has[variable] != "" && strings.HasSuffix(variable, "_REGION")
		if kept && now[variable] != has[variable] {
			t.Errorf("%s is %q, was %q", variable, now[variable], has[variable])
		}
		told := func(v string) bool {
			return v == variable || strings.HasPrefix(v, "HEADSTART_") ||
				proxied && (v == "NO_PROXY" || v == "no_proxy")
		}
		if diff := cmp.Diff(without(before, told), without(after, told), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("changed what is not ours (-before +after):\n%s", diff)
		}
		again, err := Apply(got, withS3, d)
		if err != nil {
			t.Fatalf("applying again: %v", err)
		}
		if diff := cmp.Diff(value(t, got), value(t, again)); diff != "" {
			t.Errorf("applied twice (-once +twice):\n%s", diff)
		}
	})
}

// lists are the variables of a specification's value, by name. Of one that is there twice the last one counts.
func lists(v any) map[string]string {
	process, _ := v.(map[string]any)["process"].(map[string]any)
	env, _ := process["env"].([]any)
	all := map[string]string{}
	for _, e := range env {
		variable, _ := e.(string)
		name, val, _ := strings.Cut(variable, "=")
		all[name] = val
	}
	return all
}

// without is a specification's value without the variables that are told.
func without(v any, told func(string) bool) any {
	process := v.(map[string]any)["process"].(map[string]any)
	env, _ := process["env"].([]any)
	process["env"] = slices.DeleteFunc(env, func(e any) bool {
		variable, _ := e.(string)
		name, _, _ := strings.Cut(variable, "=")
		return told(name)
	})
	return v
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
	f.Add([]byte(`{"annotations":{"headstart.dev/s3":"edge"},"process":{"env":["AWS_PROFILE=x"]},` +
		`"linux":{"namespaces":[{"type":"network","path":"/n"}]}}`))
	f.Add([]byte(`{"annotations":{"headstart.dev/s3":"edge","io.kubernetes.cri.sandbox-namespace":"a",` +
		`"io.kubernetes.cri.sandbox-name":"b","io.kubernetes.cri.sandbox-uid":"c"},"process":1}`))
	f.Add([]byte(`{"annotations":[]}`))
	f.Fuzz(func(t *testing.T, config []byte) {
		facts, err := Read(config)
		if err != nil && (facts.Pause || facts.Pod != nil || facts.SystemdCgroup || facts.S3 != "") {
			t.Errorf("both %+v and an error: %v", facts, err)
		}
		if p := facts.Pod; p != nil && (p.GetNamespace() == "" || p.GetName() == "" || p.GetUid() == "") {
			t.Errorf("half a pod: %v", p)
		}
		if why := facts.Left["s3"]; why != "" && facts.S3 == "" || why == "" && facts.S3 != "" && facts.Network == "" {
			t.Errorf("%+v: a container that asks for no store, or has the node's network", facts)
		}
	})
}
