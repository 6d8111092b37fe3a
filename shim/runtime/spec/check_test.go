package spec

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
)

// Each name that a destination can have is also one of a descriptor, and of a directory with sockets.
func TestEveryDestinationIsAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringMatching(`[a-z0-9-]{1,64}`), rapid.String()).Draw(t, "name")
		list, err := json.Marshal([]any{map[string]any{"name": name, "tcp": map[string]string{"address": "db:5432"}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := destinations.Parse(list, destinations.Node); err != nil {
			return
		}
		d := sockets("/s/a/socket", "/s/a/"+name)
		d.Descriptors = []string{name}
		if err := own.Check(d); err != nil {
			t.Error(err)
		}
	})
}
