package capability_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/nodeapi/capability"
)

// A pass is one node's for one namespace, or for all, and for a time. Nothing else that was signed is one.
func TestAPassIsOneNodesForOneNamespace(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := []ed25519.PublicKey{public}
	mine := capability.Pass{Node: "n1", Namespace: "shop"}
	until := now.Add(capability.PassLife)
	token := capability.Sign(key, mine, until)
	all := capability.Sign(key, capability.Pass{Node: "n1", Namespace: capability.AllNamespaces}, until)
	for name, c := range map[string]struct {
		keys  []ed25519.PublicKey
		pass  capability.Pass
		token string
		at    time.Time
		good  bool
	}{
		"its own":                      {keys, mine, token, now, true},
		"for all":                      {keys, mine, all, now, true},
		"another node's":               {keys, capability.Pass{Node: "n2", Namespace: "shop"}, token, now, false},
		"another node's, for all":      {keys, capability.Pass{Node: "n2", Namespace: "shop"}, all, now, false},
		"another namespace's":          {keys, capability.Pass{Node: "n1", Namespace: "bank"}, token, now, false},
		"of nobody":                    {keys, mine, "", now, false},
		"expired":                      {keys, mine, token, until.Add(capability.Skew + time.Second), false},
		"good for too long":            {keys, mine, token, now.Add(-capability.Skew - time.Minute), false},
		"of a key that does not count": {nil, mine, token, now, false},
		"a capability": {keys, mine, capability.Sign(key,
			capability.Binding{Request: "n1", Function: "shop"}, until), now, false},
	} {
		if err := c.pass.Admits(c.keys, c.token, c.at); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
