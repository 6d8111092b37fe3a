package ktls

import "testing"

// TestProbeAsked has the kernel asked once, whatever it says.
func TestProbeAsked(t *testing.T) {
	first := Probe()
	t.Log(first)
	if again := Probe(); again != first {
		t.Errorf("%v, then %v", first, again)
	}
}
