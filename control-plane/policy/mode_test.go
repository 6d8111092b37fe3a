package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const keyMask = "headstart.dev/input.mask"

// Nodes know the templates of an observed function where nothing fetches by them.
func TestAnObservedFunctionHasNoInputs(t *testing.T) {
	given := map[string]string{
		policy.KeyMode: "observe", policy.KeyInput: "s3://videos/{path.id}", keyMask: "s3://models/{header.x-key}", policy.KeyPath: "/{id}",
		policy.KeyStore: "default", policy.KeyInputLimit: "1Gi", policy.KeyReadyTimeout: "30s",
	}
	p, err := policy.Parse(given, allowed)
	if err != nil {
		t.Fatal(err)
	}
	var m nodeapi.Function
	p.Tell(&m)
	if m.TakesInput() || m.GetBodyInput() || len(m.Templates()) != 0 {
		t.Errorf("it takes inputs: %v", &m)
	}
	if diff := cmp.Diff(map[string]string{"": "/{id} s3://videos/{path.id}", "mask": "/{id} s3://models/{header.x-key}"}, m.GetObserved()); diff != "" {
		t.Errorf("observed are (-want +got):\n%s", diff)
	}
	given[policy.KeyMode] = "active"
	if p, err = policy.Parse(given, allowed); err != nil {
		t.Fatal(err)
	}
	m.Reset()
	p.Tell(&m)
	if len(m.GetObserved()) != 0 || !m.TakesInput() || m.IfActive() != nil {
		t.Errorf("an active one is %v", &m)
	}
}

func TestWhatAnObservedFunctionCannotHave(t *testing.T) {
	const beside = ": has no place beside headstart.dev/mode: observe, which only names inputs; remove one of the two"
	for key, value := range map[string]string{
		policy.KeyScaleToZero: "30s", policy.KeyTrigger: "redis://jobs/a", policy.KeyTriggerStore: "jobs", policy.KeyTriggerTries: "5",
		policy.KeyCallers: "media", policy.KeyRouting: "even", policy.KeyWorkflow: "checkout", policy.KeyState: "sessions",
		policy.KeyReadBy: "s3", policy.KeyS3Learn: "on", policy.KeySpeculation: "allowed",
	} {
		_, err := policy.Parse(map[string]string{policy.KeyMode: "observe", policy.KeyInput: "s3://videos/a", key: value}, allowed)
		if err == nil || !strings.Contains(err.Error(), key+beside) {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, tt := range []struct {
		given map[string]string
		want  string
	}{
		{map[string]string{}, `headstart.dev/mode: "observe" has no input to observe; add headstart.dev/input, or remove headstart.dev/mode`},
		{map[string]string{policy.KeyInput: "body", keyMask: "s3://videos/a"},
			`headstart.dev/input: "body" names no object that headstart.dev/mode: observe could observe; write an input like s3://videos/{header.x-key}, or remove headstart.dev/mode`},
	} {
		tt.given[policy.KeyMode] = "observe"
		if _, err := policy.Parse(tt.given, allowed); err == nil || err.Error() != tt.want {
			t.Errorf("got\n%v\nwant\n%s", err, tt.want)
		}
	}
	if _, err := policy.ParseJob(map[string]string{policy.KeyMode: "observe"}, allowed, nil); err == nil {
		t.Error("a job has the mode")
	}
}
