package plan_test

import (
	"bytes"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
)

// enough is how many requests `make test` sends.
const enough = 2000

// The same seed makes the same plan, and another one another.
func TestAPlanIsAFunctionOfItsSeed(t *testing.T) {
	same := 0
	for n := range enough {
		a, b, other := plan.Plan{Seed: 1}.Case(n), plan.Plan{Seed: 1}.Case(n), plan.Plan{Seed: 2}.Case(n)
		if a != b {
			t.Fatalf("case %d is %+v and %+v", n, a, b)
		}
		if a.ID == other.ID {
			same++
		}
	}
	if same > 0 {
		t.Errorf("%d cases of two seeds are the same", same)
	}
}

// The run of `make test` has everything in it, and so has a longer one whatever its seed.
func TestAPlanLeavesNothingOut(t *testing.T) {
	for seed, length := range map[uint64]int{7: enough, 21: 5 * enough, 22: 5 * enough, 23: 5 * enough} {
		faults, inputs, events := map[plan.Fault]int{}, map[plan.Input]int{}, map[plan.Event]int{}
		dies, foreign := map[int]int{}, map[int]int{}
		for n := range length {
			p := plan.Plan{Seed: seed}
			c := p.Case(n)
			faults[c.Fault]++
			inputs[c.Input]++
			events[p.Event(n)]++
			switch c.Fault {
			case plan.NodeDies:
				dies[c.Variant%plan.Moments]++
			case plan.Foreign:
				foreign[c.Variant%plan.Foreigners]++
			}
		}
		if len(faults) != 23 || len(inputs) != 6 || len(events) != 2 || len(dies) != plan.Moments || len(foreign) != plan.Foreigners {
			t.Errorf("seed %d has %v, %v, %v, %v, %v", seed, faults, inputs, events, dies, foreign)
		}
	}
}

func TestContentIsUnmistakable(t *testing.T) {
	p := plan.Plan{Seed: 1}
	var a plan.Case
	for n := 0; a.Size < 8 || a.Answer < 8; n++ {
		a = p.Case(n)
	}
	seen := [][]byte{a.Content(1), a.Content(2), a.Own(), a.Filler()}
	for i, x := range seen {
		for _, y := range seen[i+1:] {
			if bytes.Equal(x[:8], y[:8]) {
				t.Errorf("%x comes twice", x[:8])
			}
		}
	}
	if int64(len(seen[0])) != a.Size || int64(len(seen[3])) != a.Answer || !bytes.Equal(seen[0], a.Content(1)) {
		t.Error("wrong sizes, or not the same twice")
	}
}
