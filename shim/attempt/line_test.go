package attempt_test

import (
	"slices"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/attempt"
)

// The attempts before one are those of the order that was said last, whenever they were made.
func TestALine(t *testing.T) {
	l := attempt.NewLine(attempt.NewStalls())
	a, b, c := l.New("a"), l.New("b"), l.New("c")
	l.Order([]*attempt.Attempt{b, a, c})
	for which, want := range map[*attempt.Attempt][]*attempt.Attempt{a: {b}, b: nil, c: {a, b}, l.New("d"): nil, attempt.New(): nil} {
		if got := which.Before(); !slices.Equal(got, want) {
			t.Errorf("%d are before it, want %d", len(got), len(want))
		}
	}
	if !a.Older(b) || b.Older(a) || a.Older(a) {
		t.Error("it is not known which was made first")
	}
}

// Who reads too early what another task writes waits for it from the third time in a row on; whatever else happens in between.
func TestWhoStalls(t *testing.T) {
	early := func(a, b *attempt.Attempt) { // b has read before a counts
		since := time.Now()
		a.Counts([]string{"k", "other"})
		b.Conflicts([]string{"k"}, since)
	}
	late := func(a, b *attempt.Attempt) {
		a.Counts([]string{"k"})
		b.Conflicts([]string{"k"}, time.Now())
	}
	elsewhere := func(a, b *attempt.Attempt) {
		since := time.Now()
		a.Counts([]string{"other"})
		b.Conflicts([]string{"k"}, since)
	}
	holds := func(_, b *attempt.Attempt) { b.Counts(nil) }
	for name, c := range map[string]struct {
		runs []func(a, b *attempt.Attempt)
		want bool
	}{
		"never":                    {nil, false},
		"twice":                    {[]func(a, b *attempt.Attempt){early, early}, false},
		"three times":              {[]func(a, b *attempt.Attempt){early, early, early}, true},
		"not in a row":             {[]func(a, b *attempt.Attempt){early, early, holds, early}, false},
		"it waits, and that helps": {[]func(a, b *attempt.Attempt){early, early, early, holds, holds}, true},
		"others have written":      {[]func(a, b *attempt.Attempt){late, late, late}, false},
		"it writes something else": {[]func(a, b *attempt.Attempt){elsewhere, elsewhere, elsewhere}, false},
	} {
		s := attempt.NewStalls()
		for _, run := range append(c.runs, nil) {
			l := attempt.NewLine(s)
			a, b := l.New("a"), l.New("b")
			l.Order([]*attempt.Attempt{a, b})
			switch {
			case run != nil:
				run(a, b)
			case (len(b.Stalls()) == 1) != c.want || len(a.Stalls()) > 0:
				t.Errorf("%s: it waits for %d, and the other one for %d", name, len(b.Stalls()), len(a.Stalls()))
			}
		}
	}
}
