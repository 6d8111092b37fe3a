package capability

import (
	"crypto/ed25519"
	"sync"
	"time"
)

// usedMost is how many used capabilities a node remembers, of 60 bytes each: those of 800 requests a
// second.
const usedMost = 1 << 17

// Verifier is a node's. It takes each capability once. Its zero value has no keys.
type Verifier struct {
	mu    sync.Mutex
	keys  []ed25519.PublicKey
	used  map[mark]struct{}
	order []use // by arrival
}

// mark is the half of a signature that its signer alone determines.
type mark [ed25519.SignatureSize / 2]byte

type use struct {
	mark  mark
	until time.Time
}

// Set replaces the keys. None: some control plane signs no capabilities, and none is asked for.
func (v *Verifier) Set(keys []ed25519.PublicKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys = keys
}

// Demands tells whether there are keys.
func (v *Verifier) Demands() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.keys) > 0
}

// Use takes the capability for a binding, if it is one that was not used before.
func (v *Verifier) Use(b Binding, token string, now time.Time) error {
	v.mu.Lock()
	keys := v.keys
	v.mu.Unlock()
	expires, signature, err := Verify(keys, b, token)
	if err != nil {
		return err
	}
	if now.After(expires.Add(Skew)) || expires.After(now.Add(Life+Skew)) {
		return ErrTime
	}
	return v.remember(use{mark(signature[:len(mark{})]), expires.Add(Skew)}, now)
}

func (v *Verifier) remember(u use, now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	over := 0
	for over < len(v.order) && now.After(v.order[over].until) {
		delete(v.used, v.order[over].mark)
		over++
	}
	v.order = v.order[over:]
	if _, before := v.used[u.mark]; before {
		return ErrUsed
	}
	if len(v.used) == usedMost {
		return ErrFull
	}
	if v.used == nil {
		v.used = map[mark]struct{}{}
	}
	v.used[u.mark] = struct{}{}
	v.order = append(v.order, u)
	return nil
}
