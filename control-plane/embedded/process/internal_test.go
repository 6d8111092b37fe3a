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

func TestParseStat(t *testing.T) {
	for stat, want := range map[string]struct {
		parent int
		alive  bool
	}{
		"12 (sh) S 7 12 12 0":              {7, true},
		"12 (a) b) R 1 (x) Z 9":            {0, false}, // after the last parenthesis only
		"12 (evil) S 99 (\n) R 7 12":       {7, true},
		"12 (sh) Z 7 12":                   {0, false},
		"12 (sh) X 7 12":                   {0, false},
		"12 (sh) S":                        {0, false},
		"12 (sh) S seven 1":                {0, false},
		"12 (sh) S -7 1":                   {0, false},
		"12 sh S 7":                        {0, false},
		"":                                 {0, false},
		"12 (sh) S 99999999999999999999 1": {0, false},
	} {
		parent, alive := parseStat([]byte(stat))
		if alive != want.alive || alive && parent != want.parent {
			t.Errorf("%q: %d, %v", stat, parent, alive)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("12 (sh) S 7 12 12 0"))
	f.Add([]byte("12 () ) Z 7"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if parent, alive := parseStat(stat); alive && parent < 0 {
			t.Errorf("parent %d", parent)
		}
	})
}
