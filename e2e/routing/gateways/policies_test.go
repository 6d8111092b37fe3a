package gateways

import (
	"slices"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/xds"
)

// calm is the test bed with room everywhere.
func calm() Measured {
	return Measured{Over: 30 * time.Second, Demand: []float64{50, 25, 25}, RTT: [][]float64{{0, 0.05, 0.05}, {0.05, 0, 0.0005}, {0.05, 0.0005, 0}},
		Service: []float64{0.004, 0.004, 0.004}, Sojourn: []float64{0.004, 0.004, 0.004}, Workers: []int{1, 7, 7}}
}

func TestGatewaysAreToldWhatToExpect(t *testing.T) {
	b := balancing{expected: make([][]xds.Expected, 3)}
	if !b.decide(calm()) {
		t.Fatal("there is nothing to tell at the start")
	}
	want := xds.Expected{RTT: 50 * time.Millisecond, Service: 4 * time.Millisecond, Workers: 7, Others: 0.1}
	if got := b.expected[0][1]; got != want {
		t.Errorf("the edge expects %+v of the cloud, want %+v", got, want)
	}
	if b.decide(calm()) {
		t.Error("nothing has changed, and there is something to tell")
	}
	rows := slices.Clone(b.rows)
	slow := calm()
	slow.Service[0], slow.Sojourn[0] = 0.0055, 0.0055
	if !b.decide(slow) || b.expected[0][0].Service != 5500*time.Microsecond {
		t.Errorf("of a node that takes longer the edge expects %+v", b.expected[0][0])
	}
	if !slices.EqualFunc(rows, b.rows, slices.Equal[[]float64]) {
		t.Error("its weights are others, too, for no good reason")
	}
}
