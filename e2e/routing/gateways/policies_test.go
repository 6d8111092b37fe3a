package gateways

import (
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/weights"
	"github.com/headstart-mesh/headstart/e2e/routing/bed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// calm is the test bed with room everywhere.
func calm() Measured {
	return Measured{Over: 30 * time.Second, Demand: []float64{50, 25, 25}, RTT: [][]float64{{0, 0.05, 0.05}, {0.05, 0, 0.0005}, {0.05, 0.0005, 0}},
		Service: []float64{0.004, 0.004, 0.004}, Sojourn: []float64{0.004, 0.004, 0.004}, Workers: []int{1, 7, 7}}
}

func TestGatewaysAreToldWhatToExpect(t *testing.T) {
	s := &Set{bed: &bed.Bed{}}
	for _, name := range []string{"edge", "cloud-1", "cloud-2"} {
		s.bed.Nodes = append(s.bed.Nodes, bed.Node{Spec: bed.Spec{Name: name}})
	}
	loop := weights.NewLoop(weights.ByLatency)
	if !s.decide(loop, calm()) {
		t.Fatal("there is nothing to tell at the start")
	}
	row := s.matrix(loop).Rows["edge"]
	if want := []uint32{weightSum, 0, 0}; row.Weights[0] != want[0] {
		t.Errorf("the edge's weights are %v, want %v", row.Weights, want)
	}
	if got := row.Expected[1]; got.RTT != 50*time.Millisecond || got.Service != 4*time.Millisecond || got.Workers != 7 || got.Others < 0.05 || got.Others > 0.15 {
		t.Errorf("the edge expects %+v of the cloud", got)
	}
	if s.decide(loop, calm()) {
		t.Error("nothing has changed, and there is something to tell")
	}
	slow := calm()
	slow.Service[0], slow.Sojourn[0] = 0.0055, 0.0055
	if !s.decide(loop, slow) {
		t.Error("a node takes longer, and there is nothing to tell")
	}
	if got, want := s.matrix(loop).Rows["edge"].Expected[0], (filterapi.Expected{
		Service: 5500 * time.Microsecond, Workers: 1,
	}); got != want {
		t.Errorf("of a node that takes longer the edge expects %+v, want %+v", got, want)
	}
}
