package nodeapi_test

import (
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// What the node makes is an id, and is never the same.
func TestRequestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := nodeapi.NewRequestID()
		if !nodeapi.IsRequestID(id) || seen[id] {
			t.Fatalf("%q is no new id", id)
		}
		seen[id] = true
	}
	good := strings.Repeat("0", 32)
	for _, bad := range []string{"", good[1:], good + "0", good[1:] + "A", good[1:] + "g", good + "\n", "\n" + good, good[1:] + "/"} {
		if nodeapi.IsRequestID(bad) {
			t.Errorf("%q is an id", bad)
		}
	}
}
