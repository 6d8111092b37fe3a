package admission_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/control-plane/admission"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

var update = flag.Bool("update", false, "write the chart's file instead of comparing with it")

// services and knative return the evaluators of the two policies.
func services(t testing.TB) *evaluator {
	return compile(t, admission.Policies(allowedCEL, destinationsCEL)[0].Policy)
}
func knative(t testing.TB) *evaluator {
	return compile(t, admission.Policies(allowedCEL, destinationsCEL)[1].Policy)
}

func pods(t testing.TB) *evaluator {
	return compile(t, admission.Policies(allowedCEL, destinationsCEL)[2].Policy)
}

// object is a Service with the annotations.
func object(annotations map[string]string) map[string]any {
	if annotations == nil {
		return map[string]any{"metadata": map[string]any{}}
	}
	return map[string]any{"metadata": map[string]any{"annotations": annotations}}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// agree checks that the policy refuses exactly what policy.Parse does, and names the key.
func agree(t fataler, e *evaluator, annotations map[string]string) {
	t.Helper()
	_, wrong := policy.Parse(annotations, allowed)
	message, err := e.admit(nil, object(annotations), "default")
	switch {
	case err != nil:
		t.Fatalf("%q: %v", annotations, err)
	case wrong == nil && message != "":
		t.Fatalf("%q: CEL refuses what Go accepts: %s", annotations, message)
	case wrong != nil && message == "":
		t.Fatalf("%q: CEL accepts what Go refuses: %v", annotations, wrong)
	case strings.ContainsAny(message, "\r\n"):
		t.Fatalf("%q: Kubernetes drops a message of several lines: %s", annotations, message)
	case len(message) > 5<<10:
		t.Fatalf("%q: Kubernetes drops a message of %d bytes", annotations, len(message))
	}
}

// Knative gives its Services the annotations of a revision, which mean nothing there.
func TestServicesOfKnative(t *testing.T) {
	e := services(t)
	for name, in := range map[string]struct {
		owner   map[string]any
		refused bool
	}{
		"a ServerlessService": {map[string]any{"apiVersion": "networking.internal.knative.dev/v1alpha1", "controller": true}, false},
		"a Route":             {map[string]any{"apiVersion": "serving.knative.dev/v1", "controller": true}, false},
		"no controller":       {map[string]any{"apiVersion": "serving.knative.dev/v1"}, true},
		"somebody else":       {map[string]any{"apiVersion": "apps/v1", "controller": true}, true},
	} {
		o := object(map[string]string{policy.KeyVolumes: "models=s3://videos/llama/"})
		if message, err := e.admit(nil, o, "default"); err != nil || message == "" {
			t.Fatalf("%q, %v", message, err)
		}
		o["metadata"].(map[string]any)["ownerReferences"] = []any{in.owner}
		if message, err := e.admit(nil, o, "default"); err != nil || (message != "") != in.refused {
			t.Errorf("%s: %q, %v", name, message, err)
		}
	}
}

func TestGoAndCELAgreeOnTheTable(t *testing.T) {
	e := services(t)
	for key, values := range seeds() {
		for _, v := range values {
			agree(t, e, map[string]string{key: v})
			agree(t, e, map[string]string{policy.KeyInput: "s3://videos/a", key: v})
		}
	}
	for _, key := range unknown {
		agree(t, e, map[string]string{key: "hunter2"})
	}
	eight := map[string]string{policy.KeyInput: "body"}
	for _, c := range "abcdefgh" {
		eight["headstart.dev/input."+string(c)] = "s3://videos/a"
		agree(t, e, eight)
	}
	eight["headstart.dev/input.0"+strings.Repeat("9", 31)] = "s3://videos/a"
	agree(t, e, eight)
	for _, store := range []string{"jobs", "default", "nowhere", "Jobs"} {
		for _, stream := range streams {
			agree(t, e, map[string]string{policy.KeyTrigger: stream, policy.KeyTriggerStore: store})
			agree(t, e, map[string]string{policy.KeyTrigger: stream, policy.KeyStore: store})
			agree(t, e, map[string]string{policy.KeyTrigger: stream, policy.KeyTriggerStore: "jobs", policy.KeyStore: store})
			agree(t, e, map[string]string{policy.KeyTrigger: stream, policy.KeyTriggerStore: store, policy.KeyInput: "s3://videos/a"})
		}
	}
	for _, store := range names {
		for _, input := range references {
			agree(t, e, map[string]string{policy.KeyInput: input, policy.KeyStore: store})
			agree(t, e, map[string]string{keyMask: input, policy.KeyStore: store})
		}
	}
	for _, path := range paths {
		for _, input := range []string{
			"s3://videos/{path.camera}", "s3://videos/{path.camera}/{path.frame|urldecode}", "s3://videos/{path.a}",
			"s3://videos/{header.path.zz|trimprefix:path.}", "body",
		} {
			agree(t, e, map[string]string{policy.KeyInput: input, policy.KeyPath: path})
			agree(t, e, map[string]string{
				policy.KeyInput: "s3://videos/{path.camera}", keyMask: input, policy.KeyPath: path,
			})
		}
	}
}

// What has no place beside an observed function's inputs is the same to both, in a Knative Service, too.
func TestGoAndCELAgreeOnTheMode(t *testing.T) {
	for _, e := range []*evaluator{services(t), knative(t)} {
		for _, mode := range []string{"observe", "active", "", "Observe"} {
			for key, values := range seeds() {
				for _, v := range append(values[:min(len(values), 4):4], "body") {
					agree(t, e, map[string]string{policy.KeyMode: mode, key: v})
					agree(t, e, map[string]string{policy.KeyMode: mode, policy.KeyInput: "s3://videos/a", key: v})
					agree(t, e, map[string]string{policy.KeyMode: mode, policy.KeyInput: "body", key: v})
				}
			}
			all := map[string]string{policy.KeyMode: mode}
			for key, values := range seeds() {
				all[key] = values[0]
			}
			agree(t, e, all)
		}
	}
}

// A Knative Service has its pods' annotations beside its own.
func TestPodsOfAnObservedFunctionOfKnative(t *testing.T) {
	e := knative(t)
	for key, refused := range map[string]bool{
		policy.KeyS3: true, policy.KeyVolumes: true, policy.KeyConnections: true, policy.KeyStore: false, "example.com/s3": false,
	} {
		for mode, observes := range map[string]bool{"observe": true, "active": false} {
			o := object(map[string]string{policy.KeyMode: mode, policy.KeyInput: "s3://videos/a"})
			o["spec"] = map[string]any{"template": object(map[string]string{key: "default"})}
			message, err := e.admit(nil, o, "default")
			want := ""
			if refused && observes {
				want = "spec.template.metadata.annotations[" + key + "]: has no place beside headstart.dev/mode: observe, which only names inputs; remove one of the two"
			}
			if err != nil || message != want {
				t.Errorf("%s, %s: %q, %v", key, mode, message, err)
			}
		}
	}
}

// job is a pod of the RuntimeClass with the annotations.
func job(annotations map[string]string) map[string]any {
	o := object(annotations)
	o["spec"] = map[string]any{"runtimeClassName": "headstart"}
	return o
}

// The policy of pods says what policy.ParseJob does.
func TestGoAndCELAgreeOnJobs(t *testing.T) {
	e := pods(t)
	agree := func(annotations map[string]string) {
		t.Helper()
		_, wrong := policy.ParseJob(annotations, allowed, allowedDestinations)
		message, err := e.admit(nil, job(annotations), "default")
		if err != nil || (wrong == nil) != (message == "") {
			t.Errorf("%q: CEL says %q, %v; Go says %v", annotations, message, err, wrong)
		}
	}
	for _, a := range policy.Annotations(policy.Jobs) {
		for _, v := range append(seeds()[key(a)], a.Choices...) {
			agree(map[string]string{key(a): v})
			agree(map[string]string{policy.KeyInput: "s3://videos/a", key(a): v})
		}
	}
	for _, key := range append(unknown, policy.Keys(policy.Functions)...) {
		agree(map[string]string{key: "hunter2"})
	}
	for _, store := range names {
		for _, input := range references {
			agree(map[string]string{policy.KeyInput: input, policy.KeyStore: store})
		}
		for _, list := range volumes {
			agree(map[string]string{policy.KeyVolumes: list, policy.KeyStore: store})
			agree(map[string]string{policy.KeyVolumes: list, policy.KeyInput: "s3://old/a", policy.KeyStore: store})
		}
	}
}

// Lists that are made of the pieces that matter find more than random bytes do.
func TestGoAndCELAgreeOnVolumes(t *testing.T) {
	e := pods(t)
	pieces := []string{"models", "a", "=", "s3://", "redis://", "/", ",", "models/", "old", "..", ".", "-", " ", "{", "@", "ä", "\n", "10.0.0.1", strings.Repeat("k", 300)}
	rapid.Check(t, func(t *rapid.T) {
		list := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "near") {
			seed := rapid.SampledFrom(volumes).Draw(t, "seed")
			at := rapid.IntRange(0, len(seed)).Draw(t, "at")
			list = strings.ToValidUTF8(seed[:at]+rapid.SampledFrom(pieces).Draw(t, "piece")+seed[at:], "")
		}
		_, wrong := policy.ParseJob(map[string]string{policy.KeyVolumes: list}, allowed, allowedDestinations)
		message, err := e.admit(nil, job(map[string]string{policy.KeyVolumes: list}), "default")
		if err != nil || (wrong == nil) != (message == "") || strings.ContainsAny(message, "\r\n") {
			t.Fatalf("%q: CEL says %q, %v; Go says %v", list, message, err, wrong)
		}
	})
}

func TestMessagesOfJobs(t *testing.T) {
	e := pods(t)
	for _, annotations := range []map[string]string{
		{policy.KeyInput: "s3://videos/{header.x-key}"},
		{policy.KeyInput: "s3://private/a"},
		{policy.KeyReadBy: "fd"},
		{"headstart.dev/readby": "fd"},
		{keyMask: "s3://videos/a"},
		{policy.KeyVolumes: "models=s3://models/llama"},
		{policy.KeyVolumes: "models=redis://jobs/a/"},
		{policy.KeyVolumes: "models=s3://private/a/"},
		{policy.KeyVolumes: "models=s3://models/", policy.KeyStore: "jobs"},
		{policy.KeyVolumes: "models=s3://models/", policy.KeyStore: "nowhere"},
		{policy.KeyVolumes: "a=s3://models/,a=s3://videos/"},
		{policy.KeyVolumesWait: "11m"},
		{policy.KeyVolumesLate: "later"},
		{policy.KeyConnections: "orders,nowhere"},
		{policy.KeyConnections: "orders, sessions"},
		{policy.KeyConnections: "orders,orders"},
		{policy.KeyConnections: "a,b,c,d,e,f,g,h,i"},
		{policy.KeyConnections: "orders", policy.KeyConnectionsBy: "magic"},
	} {
		_, wrong := policy.ParseJob(annotations, allowed, allowedDestinations)
		got, err := e.admit(nil, job(annotations), "default")
		if err != nil || wrong == nil || got != wrong.Error() {
			t.Errorf("%q: got %q, %v; want %v", annotations, got, err, wrong)
		}
	}
	const want = "spec.runtimeClassName: is not headstart, which headstart.dev/input needs; set it to headstart"
	if got, err := e.admit(nil, object(map[string]string{policy.KeyInput: "s3://videos/a"}), "default"); err != nil || got != want {
		t.Errorf("without the RuntimeClass: %q, %v", got, err)
	}
	const wantOfVolumes = "spec.runtimeClassName: is not headstart, which headstart.dev/volumes needs; set it to headstart"
	got, err := e.admit(nil, object(map[string]string{policy.KeyVolumes: "models=s3://models/"}), "default")
	if err != nil || got != wantOfVolumes {
		t.Errorf("without the RuntimeClass: %q, %v", got, err)
	}
}

// Values that are made of the pieces that matter find more than random bytes do.
func TestGoAndCELAgree(t *testing.T) {
	e := services(t)
	pieces := map[policy.Kind][]string{
		policy.Duration:   {"0", "00000", "1", "9", "24", "86400", ".", "h", "m", "s", "ms", "us", "µs", "ns", "+", "-", " ", "e", "600000000001"},
		policy.Bytes:      {"0", "000", "1", "5", "9", "25", "53687", "09120", ".", "e", "E", "+", "-", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "k", "m", "M", "G", "u", "n", "T", "i", "125", "0009765625", "48828125"},
		policy.Path:       {"/", "videos", "{a}", "{camera}", "{+frame}", "{", "}", ".", "..", "+", " ", "%", "~", "\n", strings.Repeat("k", 300)},
		policy.Name:       {"a", "default", "archive", "-", "0", "A", ".", "ä", strings.Repeat("b", 31)},
		policy.Stream:     {"redis://", "jobs", "/", "frames", ".", "_", "-", ":", " ", "@", "{header.a}", "A", strings.Repeat("k", 100)},
		policy.Count:      {"0", "1", "5", "9", "10", ".", "-", "e"},
		policy.Choice:     {"balanced", "inverse", "even", "e", "B", " ", ","},
		policy.Namespaces: {"a", "media", ",", ",,", "-", " ", "A", "*", strings.Repeat("b", 31), strings.Repeat("c,", 16)},
		policy.Reference:  {"s3://", "redis://", "http://", "https://", "jobs", ":80", "www.example.com", "videos", "old", "/", ".", "..", "{header.", "{", "}", "x-key", "host", "x-headstart-", "{query.", "{path.", "camera", "|urldecode", "|trimprefix:", "{path.camera}", "{header.a}", "{header.x-key}", " ", "@", "ä", "\n", "10.0.0.1", "xn--", "-s3alias", strings.Repeat("k", 300), "A"},
	}
	rapid.Check(t, func(t *rapid.T) {
		annotations := map[string]string{}
		for _, a := range policy.Annotations(policy.Functions) {
			if rapid.Bool().Draw(t, "given") {
				seed := rapid.SampledFrom(seeds()[key(a)])
				made := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces[a.Kind]), 0, 9), func(s []string) string { return strings.Join(s, "") })
				// A seed with one more piece in it is nearly right.
				near := rapid.Custom(func(t *rapid.T) string {
					s := seed.Draw(t, "seed")
					at := rapid.IntRange(0, len(s)).Draw(t, "at")
					return strings.ToValidUTF8(s[:at]+rapid.SampledFrom(pieces[a.Kind]).Draw(t, "piece")+s[at:], "")
				})
				annotations[key(a)] = rapid.OneOf(seed, made, near, rapid.String()).Draw(t, key(a))
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
			annotations[rapid.OneOf(rapid.SampledFrom(unknown), rapid.StringMatching(`[hH]eadstart\.dev/[a-z-]{0,20}`)).Draw(t, "key")] = ""
		}
		agree(t, e, annotations)
	})
}

func FuzzGoAndCELAgree(f *testing.F) {
	for _, v := range references {
		f.Add("input", v, "default", "512Mi", "30s")
	}
	for i, v := range quantities {
		f.Add("ready-timeout", "5m", names[i%len(names)], v, durations[i%len(durations)])
	}
	f.Add("input.mask", "s3://videos/{header.x-key}", "default", "1Gi", "30s")
	f.Add("input.", "s3://videos/a", "default", "1Gi", "30s")
	e := services(f)
	f.Fuzz(func(t *testing.T, key, value, store, limit, duration string) {
		// Neither JSON nor protobuf brings anything but UTF-8 to the API server.
		for _, s := range []*string{&key, &value, &store, &limit, &duration} {
			*s = strings.ToValidUTF8(*s, "\uFFFD")
		}
		agree(t, e, map[string]string{
			policy.KeyStore: store, policy.KeyInputLimit: limit, policy.KeyScaleToZero: duration, policy.KeyInput: value, policy.Prefix + key: value,
		})
	})
}

// The chart has the policies with a place for what the operator says.
func TestTheChartIsUpToDate(t *testing.T) {
	account, err := admission.AccountPlaceholder.Policies()
	if err != nil {
		t.Fatal(err)
	}
	upToDate(t, "admission.yaml", admission.Policies(admission.Placeholder, admission.DestinationsPlaceholder))
	upToDate(t, "controlplane-policies.yaml", account)
}

func upToDate(t *testing.T, name string, policies []admission.Policy) {
	t.Helper()
	file := "../../manifests/charts/headstart/files/" + name
	text, err := admission.YAML(policies)
	if err != nil {
		t.Fatal(err)
	}
	text = append([]byte("# Made by \"make generate\" from control-plane/admission. Do not edit.\n"), text...)
	if *update {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(there), string(text)); d != "" {
		t.Errorf("make generate brings the file up to date (-file +source):\n%s", d)
	}
}

// Most messages are those of the command line, word for word.
func TestMessages(t *testing.T) {
	e := services(t)
	for _, annotations := range []map[string]string{
		{"headstart.dev/inputs": "s3://videos/a"},
		{"headstart.dev/password": "hunter2"},
		{"Headstart.dev/Input-Limit": "1Gi"},
		{policy.KeyInput: ""},
		{policy.KeyInput: "/etc/passwd"},
		{policy.KeyInput: "s3://videos"},
		{policy.KeyInput: "s3://videos/../{header.x-key}"},
		{policy.KeyInput: "s3://AKIA:secret@videos/a"},
		{policy.KeyInput: "s3://private/a"},
		{policy.KeyInput: "redis://jobs"},
		{policy.KeyInput: "https://www.example.com"},
		{policy.KeyInput: "redis://jobs/a"},
		{policy.KeyInput: "s3://videos/a", policy.KeyStore: "web"},
		{policy.KeyInput: "http://a/b", policy.KeyStore: "private"},
		{policy.KeyInput: "https://b/c", policy.KeyStore: "private"},
		{policy.KeyInput: "redis://other/a", policy.KeyStore: "jobs"},
		{policy.KeyTrigger: "redis://other/a", policy.KeyTriggerStore: "jobs"},
		{policy.KeyTrigger: "redis://jobs/a"},
		{policy.KeyTrigger: "redis://jobs/a", policy.KeyTriggerStore: "web"},
		{policy.KeyTrigger: "redis://jobs/a", policy.KeyTriggerStore: "nowhere"},
		{policy.KeyTrigger: "redis://jobs/a", policy.KeyStore: "nowhere"},
		{policy.KeyTrigger: "redis://me:pw@jobs/a"},
		{policy.KeyTriggerTries: "0"},
		{policy.KeyInput: "https://me:pw@a/b", policy.KeyStore: "private"},
		{policy.KeyInput: "s3://videos/a", policy.KeyStore: "nowhere"},
		{policy.KeyInput: "s3://videos/{path.camera}"},
		{policy.KeyInput: "s3://videos/{path.camera}", policy.KeyPath: "/{cam}"},
		{policy.KeyInput: "s3://private/{path.camera}", policy.KeyTrigger: "redis://jobs/a"},
		{policy.KeyInput: "/{a} s3://videos/a"},
		{policy.KeyInput: "s3://videos/a", keyMask: "body"},
		{keyMask: "s3://videos"},
		{keyMask: "s3://private/a"},
		{keyMask: "redis://jobs/a"},
		{keyMask: "s3://videos/{path.camera}", policy.KeyInput: "s3://videos/a"},
		{"headstart.dev/input.Mask": "s3://videos/a"},
		{policy.KeyStore: "http://10.0.0.1"},
		{policy.KeyInputLimit: "lots"},
		{policy.KeyInputLimit: "512m"},
		{policy.KeyInputLimit: "0"},
		{policy.KeyInputLimit: "6Gi"},
		{policy.KeyInputLimit: "1e19"},
		{policy.KeyScaleToZero: "30"},
		{policy.KeyScaleToZero: "25h"},
		{policy.KeyScaleToZero: strings.Repeat("0", 80) + "30s"},
		{policy.KeyReadyTimeout: "-5s"},
		{policy.KeyReadyTimeout: "10m1ns"},
		{policy.KeyReadyTimeout: "1h", policy.KeyScaleToZero: "0s", "headstart.dev/x": ""},
	} {
		_, wrong := policy.Parse(annotations, allowed)
		if wrong == nil {
			t.Errorf("%q is accepted", annotations)
			continue
		}
		got, err := e.admit(nil, object(annotations), "default")
		if err != nil {
			t.Errorf("%q: %v", annotations, err)
		}
		want := strings.ReplaceAll(wrong.Error(), "\n", "; and ")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%q (-Go +CEL):\n%s", annotations, d)
		}
	}
}

func TestStoresAreGrantedToNamespaces(t *testing.T) {
	e := services(t)
	annotations := map[string]string{policy.KeyInput: "s3://old/a", policy.KeyStore: "archive"}
	for _, namespace := range []string{"default", "other", "third"} {
		want := ""
		if _, err := policy.Parse(annotations, allowed.For(namespace)); err != nil {
			want = err.Error()
		}
		got, err := e.admit(nil, object(annotations), namespace)
		if err != nil || got != want {
			t.Errorf("namespace %s: got %q, %v, want %q", namespace, got, err, want)
		}
	}
}

func TestDestinationsAreGrantedToNamespaces(t *testing.T) {
	e := pods(t)
	annotations := map[string]string{policy.KeyConnections: "orders,sessions"}
	for _, namespace := range []string{"default", "other", "third"} {
		want := ""
		if _, err := policy.ParseJob(annotations, nil, allowedDestinations.For(namespace)); err != nil {
			want = err.Error()
		}
		got, err := e.admit(nil, job(annotations), namespace)
		if err != nil || got != want || (want == "") != (namespace != "third") {
			t.Errorf("namespace %s: got %q, %v, want %q", namespace, got, err, want)
		}
	}
	none := compile(t, admission.Policies("[]", "[]")[2].Policy)
	const want = `headstart.dev/connections: "orders" is not among the operator's destinations; ask the operator to allow it`
	if got, err := none.admit(nil, job(map[string]string{policy.KeyConnections: "orders"}), "default"); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	const needs = "spec.runtimeClassName: is not headstart, which headstart.dev/connections needs; set it to headstart"
	if got, err := e.admit(nil, object(map[string]string{policy.KeyConnections: "orders"}), "default"); err != nil || got != needs {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWithoutStoresNoInputIsAllowed(t *testing.T) {
	e := compile(t, admission.Policies(`[]`, `[]`)[0].Policy)
	const want = `headstart.dev/store: "default" is not among the operator's stores; ask the operator to allow it`
	if got, err := e.admit(nil, object(map[string]string{policy.KeyInput: "s3://videos/a"}), "default"); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// What was wrong before the policy came may be changed in every other way.
func TestOnlyChangesAreLookedAt(t *testing.T) {
	e := services(t)
	wrong := map[string]string{policy.KeyReadyTimeout: "1h", "other": "x"}
	for _, tt := range []struct {
		name     string
		old, new map[string]string
		refused  bool
	}{
		{"nothing of ours", nil, map[string]string{"other": "x"}, false},
		{"unchanged", wrong, wrong, false},
		{"another annotation", wrong, map[string]string{policy.KeyReadyTimeout: "1h", "other": "y"}, false},
		{"the wrong one changes", wrong, map[string]string{policy.KeyReadyTimeout: "2h"}, true},
		{"one more comes", wrong, map[string]string{policy.KeyReadyTimeout: "1h", policy.KeyScaleToZero: "30s"}, true},
		{"it goes", wrong, map[string]string{"other": "x"}, false},
		{"all go", wrong, nil, false},
		{"it comes", nil, wrong, true},
		{"a store goes on which the input relies", map[string]string{policy.KeyInput: "s3://old/a", policy.KeyStore: "archive"}, map[string]string{policy.KeyInput: "s3://old/a"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			message, err := e.admit(object(tt.old), object(tt.new), "default")
			if err != nil || (message != "") != tt.refused {
				t.Errorf("got %q, %v; refused should be %t", message, err, tt.refused)
			}
		})
	}
}

func TestARevisionHasNoAnnotationsOfItsOwn(t *testing.T) {
	e := knative(t)
	o := object(map[string]string{policy.KeyScaleToZero: "30s"})
	if got, err := e.admit(nil, o, "default"); err != nil || got != "" {
		t.Errorf("without a template: %q, %v", got, err)
	}
	o["spec"] = map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]string{policy.KeyInput: "s3://videos/a", "autoscaling.knative.dev/min-scale": "0"}}}}
	const want = "spec.template.metadata.annotations[headstart.dev/input]: does not belong here; move it to metadata.annotations"
	if got, err := e.admit(nil, o, "default"); err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	volumes := object(nil)
	volumes["spec"] = map[string]any{"template": object(map[string]string{policy.KeyVolumes: "models=s3://models/", policy.KeyStore: "default"})}
	if got, err := e.admit(nil, volumes, "default"); err != nil || got != "" {
		t.Errorf("with volumes: %q, %v", got, err)
	}
	alone := map[string]any{"metadata": map[string]any{"name": "fire"}, "spec": o["spec"]}
	if got, err := e.admit(nil, alone, "default"); err != nil || got != want {
		t.Errorf("with no other: got %q, %v, want %q", got, err, want)
	}
	if got, err := e.admit(alone, alone, "default"); err != nil || got != "" {
		t.Errorf("from before: got %q, %v", got, err)
	}
}
