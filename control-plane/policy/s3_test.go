package policy_test

import (
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/policy"
)

// What is to be read by S3 has to be named.
func TestReadByS3NeedsAnInput(t *testing.T) {
	const none = `headstart.dev/read-by: "s3" needs an input of a store; add headstart.dev/input, ` +
		`or remove it: programs read by S3 without it, too`
	for input, want := range map[string]string{"": none, "body": none, "s3://videos/{header.x-k}": ""} {
		given := map[string]string{policy.KeyReadBy: policy.ReadByS3}
		if input != "" {
			given[policy.KeyInput] = input
		}
		got := ""
		if _, err := policy.Parse(given, allowed); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %s", input, got)
		}
	}
}
