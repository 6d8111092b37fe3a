package process

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRestartDelayGrowsToItsCap(t *testing.T) {
	if d := restartDelay(0); d != firstRestart {
		t.Errorf("first: %v", d)
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<20).Draw(t, "failures")
		d, next := restartDelay(n), restartDelay(n+1)
		if d > next || next > maxRestart || (d < maxRestart && next < min(2*d, maxRestart)) {
			t.Errorf("%v, then %v", d, next)
		}
	})
	if restartDelay(20) != maxRestart || maxRestart > time.Minute {
		t.Error("the cap is out of reach")
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all strings.Builder
		log := tail{next: &all}
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 2*tailBytes), 0, 8).Draw(t, "writes") {
			line := strings.Repeat(string(rune('a'+n%26)), n)
			if got, err := log.Write([]byte(line)); got != n || err != nil {
				t.Fatalf("%d, %v", got, err)
			}
		}
		want := all.String()[max(0, all.Len()-tailBytes):]
		if got := log.String(); got != want {
			t.Errorf("%d bytes kept, %d wanted", len(got), len(want))
		}
	})
}
