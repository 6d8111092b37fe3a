package fair_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/fair"
)

// One that is alone gets four fifths, two that want all get four ninths each.
func TestShare(t *testing.T) {
	s := fair.NewShare(900)
	if got := s.Left("flood/f"); got != 720 || got != fair.Most(900) {
		t.Errorf("alone it may have %d", got)
	}
	if s.Take("flood/f", 721) || s.Used() != 0 {
		t.Error("it gets more")
	}
	for s.Take("flood/f", 1) && s.Take("other/g", 1) {
	}
	if a, b := s.Has("flood/f"), s.Has("other/g"); a != 400 || b != 400 {
		t.Errorf("two get %d and %d", a, b)
	}
	s.Return("flood/f", 400)
	s.Return("other/g", 400)
	if s.Used() != 0 || s.Left("third") != 720 {
		t.Errorf("%d are left", s.Used())
	}
}

// The functions of a namespace have one share together, as many as they are.
func TestManyFunctionsHaveOneShare(t *testing.T) {
	s := fair.NewShare(1000)
	for n := 0; s.Take(fmt.Sprintf("flood/f%d", n%100), 1); n++ {
	}
	if s.Used() != fair.Most(1000) {
		t.Errorf("100 functions have %d", s.Used())
	}
}

// Whatever namespaces do, there is never more than there is, and one that has nothing finds four fifths of
// what is free.
func TestWhoHasNothingFindsRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(0, 1<<62).Draw(t, "limit")
		s := fair.NewShare(limit)
		has := map[string]int64{}
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			who := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "who")
			if rapid.Bool().Draw(t, "takes") {
				n := rapid.Int64Range(0, s.Left(who)).Draw(t, "n")
				if !s.Take(who, n) {
					t.Fatalf("%d are left, and not to be had", n)
				}
				has[who] += n
			} else {
				n := rapid.Int64Range(0, has[who]).Draw(t, "n")
				s.Return(who, n)
				has[who] -= n
			}
			free := limit - has["a"] - has["b"] - has["c"]
			if s.Used() != limit-free || free < 0 || s.Has(who) != has[who] {
				t.Fatalf("%d of %d are used, of %v", s.Used(), limit, has)
			}
			if free > 1 && s.Left("new") != fair.Most(free) || free > 1 && s.Left("new") == 0 {
				t.Fatalf("of %d that are free one gets %d", free, s.Left("new"))
			}
		}
	})
}

// However unequal they began, those that take all they may are equal once what they had has ended.
func TestFloodsBecomeEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"a", "b", "c", "d"}[:rapid.IntRange(2, 4).Draw(t, "namespaces")]
		s := fair.NewShare(1000)
		take := func() {
			for _, name := range names { // the first is always the first
				for s.Take(name, 1) {
				}
			}
		}
		take()
		for range 4000 {
			who := names[rapid.IntRange(0, len(names)-1).Draw(t, "who")]
			if s.Has(who) > 0 {
				s.Return(who, 1)
			}
			take()
		}
		for _, name := range names {
			if got, want := s.Has(name), int64(4000/(4*len(names)+1)); got < want-5 || got > want+5 {
				t.Fatalf("%s has %d, where %d is equal", name, got, want)
			}
		}
	})
}
