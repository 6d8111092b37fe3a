package capability

import (
	"crypto/ed25519"
	"errors"
	"time"
)

const (
	// PassLife is how long after its signature a pass is good: a node that may no longer have a namespace's
	// objects gets none after that. It bridges control planes that are being replaced.
	PassLife = 15 * time.Minute
	// PassRenewal is after how long a node is given the next one.
	PassRenewal = PassLife / 3
	// AllNamespaces is the namespace of a pass for all of them, which a node with a gateway has.
	AllNamespaces = "*"
)

// ErrPass says that a node may not have a namespace's objects.
var ErrPass = errors.New("its pass is not the control plane's for that node and namespace, or has expired")

// Pass is what a node shows the others of its site to get a namespace's objects. Unlike a Binding it is used
// many times.
type Pass struct {
	// Node is its name by its certificate.
	Node, Namespace string
}

func (p Pass) text(expiry []byte) []byte {
	return textOf("headstart pass 1\n", expiry, p.Node, p.Namespace)
}

// Admits tells whether the token is for the pass, or for all namespaces.
func (p Pass) Admits(keys []ed25519.PublicKey, token string, now time.Time) error {
	for _, pass := range []Pass{p, {p.Node, AllNamespaces}} {
		expires, _, err := Verify(keys, pass, token)
		if err == nil && !now.After(expires.Add(Skew)) && !expires.After(now.Add(PassLife+Skew)) {
			return nil
		}
	}
	return ErrPass
}
