package peers_test

import (
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

// How fast one node gets an object from another one, over TLS and with its digests, within one process.
func BenchmarkFetch(b *testing.B) {
	const size = 64 * digest.Block
	s := newSite(b, size, 2)
	if _, err := s.by(0).fetch(b); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		s.by(1).mu.Lock()
		s.by(1).entries = nil
		s.by(1).mu.Unlock()
		if _, err := s.by(1).fetch(b); err != nil {
			b.Fatal(err)
		}
	}
	if n := s.origin.count(); n != 1 {
		b.Errorf("the store was asked %d times", n)
	}
}
