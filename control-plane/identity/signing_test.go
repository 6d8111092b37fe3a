package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/identity"
)

// Replicas sign by one key, which tells nothing of the authority's, and another authority by another.
func TestReplicasSignByOneKey(t *testing.T) {
	store := &memory{}
	var keys []string
	for _, s := range []identity.Store{store, store, &memory{}} {
		a, err := identity.Open(t.Context(), s, namespace)
		if err != nil {
			t.Fatal(err)
		}
		key, err := a.SigningKey()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, string(key))
	}
	if keys[0] != keys[1] || keys[0] == keys[2] {
		t.Error("replicas of one authority have two keys, or two authorities have one")
	}
}

func TestASigningKeyNeedsAnother(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := identity.SigningKey(key); err != nil {
		t.Error(err)
	}
	if _, err := identity.SigningKey("no key"); err == nil {
		t.Error("a key is derived from none")
	}
}
