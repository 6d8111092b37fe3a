package distinct_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi/distinct"
)

func TestAttackASketchOfABrokenNodeIsANumber(t *testing.T) {
	var s distinct.Sketch
	for i := range uint64(distinct.Most) {
		s.Join([]uint64{i})
	}
	if got := s.Count(); got < distinct.Most {
		t.Errorf("%d are counted", got)
	}
}

func TestCount(t *testing.T) {
	for _, n := range []int{0, 1, distinct.Most - 1, distinct.Most, 1000, 100_000} {
		var s, one, other distinct.Sketch
		for i := range n {
			text := fmt.Sprint("s3://videos/", i)
			s.Add(text)
			s.Add(text)
			if i%3 > 0 { // a third is on both nodes
				one.Add(text)
			}
			if i%3 < 2 {
				other.Add(text)
			}
		}
		allowed := 0.0
		if n >= distinct.Most {
			allowed = 0.2 * float64(n) // three standard errors
		}
		if got := s.Count(); math.Abs(float64(got)-float64(n)) > allowed {
			t.Errorf("%d of %d are counted", got, n)
		}
		one.Join(other.Hashes())
		if one.Count() != s.Count() {
			t.Errorf("two nodes together count %d, one alone %d", one.Count(), s.Count())
		}
		if len(s.Hashes()) > distinct.Most {
			t.Errorf("%d hashes are kept", len(s.Hashes()))
		}
	}
}
