package identity

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
)

// signingPurpose tells the key of capabilities from any other that is derived.
const signingPurpose = "headstart capability 1"

// SigningKey returns the key that capabilities are signed by (shim/nodeapi/capability). It is derived from
// the private key that the control plane has already: whoever has that one has this one, so the
// replicas have one, and it is kept, replaced and revoked with the other.
func SigningKey(of crypto.PrivateKey) (ed25519.PrivateKey, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(of)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of capabilities: %w", err)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, signingPurpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of capabilities: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// SigningKey returns that of the authority as it is now. A control plane has one for its life: nodes
// know those of all control planes that they have a stream with, also after a rotation.
func (a *Authority) SigningKey() (ed25519.PrivateKey, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return SigningKey(a.signer.key)
}
