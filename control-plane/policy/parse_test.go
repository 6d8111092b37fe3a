package policy_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

var allowed = stores.Stores{
	{Name: "default", Kind: "s3", Endpoint: "http://s3:9000", Buckets: []string{"videos", "models"}},
	{Name: "archive", Kind: "s3", Endpoint: "https://s3.example.com", Buckets: []string{"old"}},
	{Name: "jobs", Kind: "redis", Endpoint: "redis:6379", Buckets: []string{"jobs"}},
	{Name: "web", Kind: "http", Buckets: []string{"www.example.com"}},
	{Name: "private", Kind: "http", Buckets: []string{"models.example.com:8443"}, Secret: "private"},
}

const knownKeys = "headstart.dev/input, headstart.dev/input.<name>, headstart.dev/path, headstart.dev/store, headstart.dev/input-limit, headstart.dev/scale-to-zero, headstart.dev/ready-timeout, headstart.dev/trigger, headstart.dev/trigger-store, headstart.dev/trigger-tries, headstart.dev/callers, headstart.dev/routing, headstart.dev/mode, headstart.dev/workflow, headstart.dev/state, headstart.dev/read-by, headstart.dev/s3-learn, headstart.dev/speculation"

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        policy.Policy
	}{
		{"nothing", nil, policy.Default()},
		{
			"other domains are not ours",
			map[string]string{"headstart.development/input": "x", "headstart.dev": "x", "serving.knative.dev/creator": "me"},
			policy.Default(),
		},
		{
			"all",
			map[string]string{
				policy.KeyInput: "s3://old/{header.x-key}", policy.KeyStore: "archive", policy.KeyInputLimit: "5Gi",
				policy.KeyScaleToZero: "24h", policy.KeyReadyTimeout: "1s", policy.KeyCallers: "media,web", policy.KeyRouting: "inverse",
			},
			policy.Policy{Input: "s3://old/{header.x-key}", Store: "archive", InputLimit: 5 << 30, ScaleToZero: 24 * time.Hour, ReadyTimeout: time.Second, Callers: "media,web", Routing: policy.RoutingInverse},
		},
		{
			"a header's bucket is checked per request",
			map[string]string{policy.KeyInput: "s3://{header.x-bucket}/{header.x-key}"},
			policy.Policy{Input: "s3://{header.x-bucket}/{header.x-key}", Store: "default", InputLimit: 1 << 30, ScaleToZero: 30 * time.Second, ReadyTimeout: time.Minute, Routing: policy.RoutingBalanced},
		},
		{
			"the body needs no store",
			map[string]string{policy.KeyInput: "body", policy.KeyStore: "elsewhere"},
			policy.Policy{BodyInput: true, Store: "elsewhere", InputLimit: 1 << 30, ScaleToZero: 30 * time.Second, ReadyTimeout: time.Minute, Routing: policy.RoutingBalanced},
		},
		{
			"named inputs",
			map[string]string{
				policy.KeyInput: "body", "headstart.dev/input.mask": "s3://videos/{header.x-key}",
				"headstart.dev/input.b-2": "s3://models/a",
			},
			policy.Policy{BodyInput: true, Named: map[string]string{
				"mask": "s3://videos/{header.x-key}", "b-2": "s3://models/a",
			},
				Store: "default", InputLimit: 1 << 30, ScaleToZero: 30 * time.Second, ReadyTimeout: time.Minute, Routing: policy.RoutingBalanced},
		},
		{
			"a store without an input may be unknown",
			map[string]string{policy.KeyStore: "elsewhere"},
			policy.Policy{Store: "elsewhere", InputLimit: 1 << 30, ScaleToZero: 30 * time.Second, ReadyTimeout: time.Minute, Routing: policy.RoutingBalanced},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := policy.Parse(tt.annotations, allowed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tt := range []struct {
		key, value, want string
	}{
		{"headstart.dev/inputs", "s3://videos/a", "headstart.dev/inputs: is not a Headstart annotation; did you mean headstart.dev/input? Known keys are " + knownKeys},
		{"Headstart.dev/Input-Limit", "1Gi", "Headstart.dev/Input-Limit: is not a Headstart annotation; did you mean headstart.dev/input-limit? Known keys are " + knownKeys},
		{"headstart.dev/password", "hunter2", "headstart.dev/password: is not a Headstart annotation; remove it; known keys are " + knownKeys},
		{"headstart.dev/\x1b[31m", "x", `"headstart.dev/\x1b[31m": is not a Headstart annotation; remove it; known keys are ` + knownKeys},
		{policy.KeyInput, "", "headstart.dev/input: is not an input reference: must start with s3://, redis://, http:// or https://: no other store is supported; write it like s3://videos/{header.x-key}, or body"},
		{policy.KeyInput, "/etc/passwd", `headstart.dev/input: "/etc/passwd" is not an input reference: must start with s3://, redis://, http:// or https://: no other store is supported; write it like s3://videos/{header.x-key}, or body`},
		{policy.KeyInput, "s3://videos/../{header.x-key}", `headstart.dev/input: "s3://videos/../{header.x-key}" is not an input reference: key has the path segment ".."; write it like s3://videos/{header.x-key}, or body`},
		{policy.KeyInput, "Body", `headstart.dev/input: "Body" is not an input reference: must start with s3://, redis://, http:// or https://: no other store is supported; write it like s3://videos/{header.x-key}, or body`},
		{policy.KeyInput, "s3://AKIA:secret@videos/a", `headstart.dev/input: "s3://***@videos/a" holds a user or password; remove it; the operator's store has the credentials`},
		{policy.KeyInput, "s3://private/a", `headstart.dev/input: "s3://private/a" reads a bucket that store default does not allow; use one of videos, models, or ask the operator to allow it`},
		{
			policy.KeyInput, "/{a} s3://videos/{path.a}",
			`headstart.dev/input: "/{a} s3://videos/{path.a}" is not an input reference: must start with s3://, redis://, http:// or https://: no other store is supported; write it like s3://videos/{header.x-key}, or body`,
		},
		{
			policy.KeyInput, "s3://videos/{path.a}",
			`headstart.dev/input: "s3://videos/{path.a}" has a {path.<name>} that headstart.dev/path does not have; write that like /videos/{<name>}`,
		},
		{
			"headstart.dev/input.mask", "body",
			`headstart.dev/input.mask: "body" is not an input reference: must start with s3://, redis://, http:// or https://: no other store is supported; write it like s3://masks/{header.x-key}.png`,
		},
		{
			"headstart.dev/input.mask", "s3://private/a",
			`headstart.dev/input.mask: "s3://private/a" reads a bucket that store default does not allow; use one of videos, models, or ask the operator to allow it`,
		},
		{
			"headstart.dev/input.mask", "s3://videos/{path.a}",
			`headstart.dev/input.mask: "s3://videos/{path.a}" has a {path.<name>} that headstart.dev/path does not have; write that like /videos/{<name>}`,
		},
		{
			"headstart.dev/input.Mask", "s3://videos/a",
			"headstart.dev/input.Mask: has no name of an input at its end; use 1 to 32 of a-z, 0-9 and -, starting and ending with a letter or digit",
		},
		{
			"headstart.dev/input.", "s3://videos/a",
			"headstart.dev/input.: has no name of an input at its end; use 1 to 32 of a-z, 0-9 and -, starting and ending with a letter or digit",
		},
		{
			"headstart.dev/input.<name>", "s3://videos/a",
			"headstart.dev/input.<name>: has no name of an input at its end; use 1 to 32 of a-z, 0-9 and -, starting and ending with a letter or digit",
		},
		{
			"headstart.dev/inputs.mask", "s3://videos/a",
			"headstart.dev/inputs.mask: is not a Headstart annotation; did you mean headstart.dev/input.mask? Known keys are " + knownKeys,
		},
		{
			"Headstart.dev/Input.mask", "s3://videos/a",
			"Headstart.dev/Input.mask: is not a Headstart annotation; did you mean headstart.dev/input.mask? Known keys are " + knownKeys,
		},
		{
			policy.KeyPath, "videos/{key}",
			`headstart.dev/path: "videos/{key}" is not a path: must begin with a slash; write it like /videos/{camera}/{+frame}`,
		},
		{policy.KeyStore, "http://10.0.0.1", `headstart.dev/store: "http://10.0.0.1" is not the name of a store; use 1 to 63 of a-z, 0-9 and -, starting and ending with a letter or digit`},
		{policy.KeyInputLimit, "lots", `headstart.dev/input-limit: "lots" is not a quantity; write it like 512Mi`},
		{policy.KeyInputLimit, "512m", `headstart.dev/input-limit: "512m" is not a whole number of bytes; write it like 512Mi`},
		{policy.KeyInputLimit, "0", `headstart.dev/input-limit: "0" is no room for any input; remove the annotation or write it like 512Mi`},
		{policy.KeyInputLimit, "6Gi", `headstart.dev/input-limit: "6Gi" is more than 5Gi; use at most 5Gi`},
		{policy.KeyScaleToZero, "30", `headstart.dev/scale-to-zero: "30" is not a duration; write it like 90s or 5m`},
		{policy.KeyScaleToZero, "25h", `headstart.dev/scale-to-zero: "25h" is out of range; use 1s to 24h`},
		{policy.KeyScaleToZero, strings.Repeat("0", 80) + "30s", `headstart.dev/scale-to-zero: "` + strings.Repeat("0", 64) + `…" is not a duration; write it like 90s or 5m`},
		{policy.KeyReadyTimeout, "-5s", `headstart.dev/ready-timeout: "-5s" is out of range; use 1s to 10m`},
		{policy.KeyReadyTimeout, "10m1ns", `headstart.dev/ready-timeout: "10m1ns" is out of range; use 1s to 10m`},
		{policy.KeyCallers, "media, web", `headstart.dev/callers: "media, web" is not a list of namespaces; write it like media,web`},
		{policy.KeyCallers, "*", `headstart.dev/callers: "*" is not a list of namespaces; write it like media,web`},
		{policy.KeyMode, "watch", `headstart.dev/mode: "watch" is neither of the two; use active or observe`},
		{policy.KeyRouting, "Even", `headstart.dev/routing: "Even" is not how requests are routed; use balanced or inverse or even`},
		{policy.KeyCallers, strings.Repeat("a,", 32) + "a", `headstart.dev/callers: "` + strings.Repeat("a,", 32) + `…" names more than 32 namespaces; put functions that belong together into one`},
	} {
		t.Run(tt.key+"="+tt.value, func(t *testing.T) {
			got, err := policy.Parse(map[string]string{tt.key: tt.value}, allowed)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			var one *field.Error
			if !errors.As(err, &one) || one.Field != tt.key && !strings.HasPrefix(one.Field, `"`) {
				t.Errorf("errors.As finds %#v, want the field %s", one, tt.key)
			}
		})
	}
}

func TestParseReportsAllProblemsTogether(t *testing.T) {
	_, err := policy.Parse(map[string]string{
		policy.KeyInput: "s3://videos/a", policy.KeyStore: "nowhere", policy.KeyInputLimit: "1", "headstart.dev/x": "", policy.KeyReadyTimeout: "1h",
	}, allowed)
	want := strings.Join([]string{
		"headstart.dev/x: is not a Headstart annotation; remove it; known keys are " + knownKeys,
		`headstart.dev/ready-timeout: "1h" is out of range; use 1s to 10m`,
		`headstart.dev/store: "nowhere" is not among the operator's stores; use one of default, archive, jobs, web, private`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestThePathGivesTheInputItsVariables(t *testing.T) {
	given := map[string]string{
		policy.KeyPath:  "/videos/{camera}/{+frame}",
		policy.KeyInput: "s3://videos/{path.camera}/{path.frame|urldecode}",
	}
	p, err := policy.Parse(given, allowed)
	if want := "/videos/{camera}/{+frame} s3://videos/{path.camera}/{path.frame|urldecode}"; err != nil || p.Templates()[""] != want {
		t.Errorf("%q, %v; want %q", p.Templates(), err, want)
	}
	delete(given, policy.KeyInput)
	if p, err := policy.Parse(given, allowed); err != nil || len(p.Templates()) != 0 {
		t.Errorf("without an input: %q, %v", p.Templates(), err)
	}
	given["headstart.dev/input.mask"] = "s3://videos/{path.frame}"
	if p, err := policy.Parse(given, allowed); err != nil || p.Templates()["mask"] != "/videos/{camera}/{+frame} s3://videos/{path.frame}" {
		t.Errorf("a named input: %q, %v", p.Templates(), err)
	}
}

func TestThereAreAtMostEightNamedInputs(t *testing.T) {
	given := map[string]string{policy.KeyInput: "s3://videos/a"}
	for _, c := range "abcdefgh" {
		given["headstart.dev/input."+string(c)] = "s3://videos/b"
	}
	if p, err := policy.Parse(given, allowed); err != nil || len(p.Named) != 8 {
		t.Errorf("eight: %+v, %v", p, err)
	}
	given["headstart.dev/input.i"] = "s3://videos/b"
	const want = "headstart.dev/input.<name>: is there more than 8 times; put what belongs together into one object"
	if _, err := policy.Parse(given, allowed); err == nil || err.Error() != want {
		t.Errorf("nine: %v", err)
	}
}

// Each kind of store has its references.
func TestTheInputMustFitItsStore(t *testing.T) {
	for _, tt := range []struct{ input, store, want string }{
		{"redis://jobs/{header.x-job}", "jobs", ""},
		{"redis://{header.x-space}/{header.x-job}", "jobs", ""},
		{"http://www.example.com/{header.x-page}", "web", ""},
		{"https://www.example.com/{header.x-page}", "web", ""},
		{"https://models.example.com:8443/{header.x-model}", "private", ""},
		{"redis://jobs/a", "default", `headstart.dev/input: "redis://jobs/a" does not begin as references to store default do; begin it with s3://, or name another store in headstart.dev/store`},
		{"s3://videos/a", "jobs", `headstart.dev/input: "s3://videos/a" does not begin as references to store jobs do; begin it with redis://, or name another store in headstart.dev/store`},
		{"s3://videos/a", "web", `headstart.dev/input: "s3://videos/a" does not begin as references to store web do; begin it with https:// or http://, or name another store in headstart.dev/store`},
		{"http://models.example.com:8443/a", "private", `headstart.dev/input: "http://models.example.com:8443/a" does not begin as references to store private do; begin it with https://, or name another store in headstart.dev/store`},
		{
			"redis://other/a", "jobs",
			`headstart.dev/input: "redis://other/a" reads a bucket that store jobs does not allow; use one of jobs, or ask the operator to allow it`,
		},
		{
			"https://models.example.com/a", "private",
			`headstart.dev/input: "https://models.example.com/a" reads a bucket that store private does not allow; use one of models.example.com:8443, or ask the operator to allow it`,
		},
		{"https://me:pw@www.example.com/a", "web", `headstart.dev/input: "https://***@www.example.com/a" holds a user or password; remove it; the operator's store has the credentials`},
	} {
		_, err := policy.Parse(map[string]string{policy.KeyInput: tt.input, policy.KeyStore: tt.store}, allowed)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s in %s: -want +got\n%s", tt.input, tt.store, diff)
		}
	}
}

func TestParseWithoutStores(t *testing.T) {
	_, err := policy.Parse(map[string]string{policy.KeyInput: "s3://videos/a"}, nil)
	want := `headstart.dev/store: "default" is not among the operator's stores; ask the operator to allow it`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// One letter off is what people type; the hint must name what they meant.
func TestTyposFindTheirKey(t *testing.T) {
	keys := strings.Split(strings.Replace(knownKeys, "<name>", "mask", 1), ", ")
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom(keys).Draw(t, "key")
		end := len(key) - 1
		if name := strings.IndexByte(key[len(policy.Prefix):], '.'); name >= 0 {
			end = len(policy.Prefix) + name - 1 // the name is anybody's
		}
		at := rapid.IntRange(len(policy.Prefix), end).Draw(t, "at")
		typo := rapid.SampledFrom([]string{key[:at] + key[at+1:], key[:at] + "q" + key[at:], key[:at] + "q" + key[at+1:]}).Draw(t, "typo")
		_, err := policy.Parse(map[string]string{typo: ""}, allowed)
		if err == nil || !strings.Contains(err.Error(), "did you mean "+key+"?") {
			t.Fatalf("%s: %v", typo, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("input", "s3://videos/{header.x-key}", "default", "1Gi", "30s")
	f.Add("inputt", "s3://{header.a}/b", "archive", "1e3", "1h")
	f.Add("input", "redis://jobs/{header.a}", "jobs", "1e3", "1h")
	f.Add("input", "https://www.example.com/b", "web", "1e3", "1h")
	f.Add("input.mask", "s3://videos/{header.x-key}", "default", "1Gi", "30s")
	f.Add("input.", "s3://videos/a", "default", "1Gi", "30s")
	f.Fuzz(func(t *testing.T, key, input, store, limit, duration string) {
		p, err := policy.Parse(map[string]string{
			policy.Prefix + key: input, policy.KeyInput: input, policy.KeyStore: store, policy.KeyInputLimit: limit,
			policy.KeyScaleToZero: duration, policy.KeyReadyTimeout: duration,
		}, allowed)
		if err != nil {
			if !reflect.DeepEqual(p, policy.Policy{}) {
				t.Errorf("a policy %+v with the error %v", p, err)
			}
			return
		}
		if p.InputLimit < 1 || p.InputLimit > policy.MaxInputLimit ||
			p.ScaleToZero < policy.MinScaleToZero || p.ScaleToZero > policy.MaxScaleToZero ||
			p.ReadyTimeout < policy.MinReadyTimeout || p.ReadyTimeout > policy.MaxReadyTimeout {
			t.Errorf("out of bounds: %+v", p)
		}
		if _, err := reference.ParseTemplates(p.Templates()); err != nil {
			t.Errorf("inputs %q: %v", p.Templates(), err)
		}
		if _, ok := allowed.Get(p.Store); p.StoredInput() && !ok {
			t.Errorf("store %q is not allowed", p.Store)
		}
	})
}
