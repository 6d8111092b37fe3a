package capability

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"
)

// handsOver does all that a hand-over has more with a capability than without: the control plane signs,
// the request's node sets the header, and the instance's node reads it and verifies.
func handsOver(t testing.TB, private ed25519.PrivateKey, v *Verifier, number int, signed func()) {
	b := example()
	b.Request = fmt.Sprintf("%032x", number)
	token := Sign(private, b, now.Add(Life))
	signed()
	header := http.Header{}
	header.Set("x-headstart-capability", token)
	if err := v.Use(b, header.Get("x-headstart-capability"), now); err != nil {
		t.Fatal(err)
	}
}

// What a capability costs a request is logged as JSON, for the project's bounds: nothing else
// of it waits for anything. Half of the samples are below (p50).
func TestCost(t *testing.T) {
	const samples = 1000
	private, public := newKey(t)
	var v Verifier
	v.Set([]ed25519.PublicKey{public})
	var nodes, all []time.Duration
	for i := range samples {
		began := time.Now()
		var signed time.Time
		handsOver(t, private, &v, i, func() { signed = time.Now() })
		nodes, all = append(nodes, time.Since(signed)), append(all, time.Since(began))
	}
	p50 := func(of []time.Duration) float64 {
		slices.Sort(of)
		return float64(of[len(of)/2].Nanoseconds()) / 1000
	}
	line, err := json.Marshal(map[string]float64{"capability_added_us": p50(all), "capability_added_on_nodes_us": p50(nodes)})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(string(line))
}

func BenchmarkHandOver(b *testing.B) {
	private, public := newKey(b)
	b.Run("signed and verified", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			v := Verifier{keys: []ed25519.PublicKey{public}}
			handsOver(b, private, &v, i, func() {})
		}
	})
	b.Run("verified", func(b *testing.B) {
		token := Sign(private, example(), now.Add(Life))
		for b.Loop() {
			v := Verifier{keys: []ed25519.PublicKey{public}}
			if err := v.Use(example(), token, now); err != nil {
				b.Fatal(err)
			}
		}
	})
}
