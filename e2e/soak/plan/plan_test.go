package plan_test

import (
	"bytes"
	"fmt"
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
		dies, foreign := map[string]int{}, map[int]int{}
		ways, readings, paced, broken := map[string]int{}, map[string]int{}, 0, 0
		for n := range length {
			p := plan.Plan{Seed: seed}
			c := p.Case(n)
			faults[c.Fault]++
			inputs[c.Input]++
			events[p.Event(n)]++
			ways[fmt.Sprint(c.Way, " ", c.From)]++
			readings[fmt.Sprint(c.Way, " ", c.Socket)]++
			if c.Paced {
				paced++
			}
			if _, breaks := p.Line(n); breaks {
				broken++
			}
			switch c.Fault {
			case plan.NodeDies:
				dies[fmt.Sprint("moment ", c.Variant%plan.Moments)]++
				dies[fmt.Sprint("from ", c.From, " to ", c.On)]++
			case plan.Foreign:
				foreign[c.Variant%plan.Foreigners]++
			}
		}
		if len(faults) != 25 || len(inputs) != 6 || len(events) != 2 || len(dies) != plan.Moments+4 || len(foreign) != plan.Foreigners {
			t.Errorf("seed %d has %v, %v, %v, %v, %v", seed, faults, inputs, events, dies, foreign)
		}
		if len(ways) != 5 || len(readings) != 9 || paced == 0 || broken == 0 {
			t.Errorf("seed %d has %v, %v, %d paced, %d lines that break", seed, ways, readings, paced, broken)
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
