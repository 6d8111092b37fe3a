package ingress

import (
	"testing"
	"time"
)

func TestTimesOverlap(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for name, tt := range map[string]struct{ from, to, began, ended, want int }{
		"the input is longer":            {0, 5, 0, 9, 5},
		"the start is longer":            {0, 9, 1, 4, 3},
		"the input began before":         {3, 9, 0, 5, 2},
		"the input was there before":     {3, 9, 0, 2, -1},
		"the input comes after it all":   {0, 4, 6, 9, -2},
		"both at once, for equally long": {1, 4, 1, 4, 3},
	} {
		if got := overlap(at(tt.from), at(tt.to), at(tt.began), at(tt.ended)); got != time.Duration(tt.want)*time.Second {
			t.Errorf("%s: %v", name, got)
		}
	}
}
