package predict_test

import (
	"testing"

	"github.com/headstart-mesh/headstart/shim/workflow/predict"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// What most runs choose is guessed, by the route on which they came; what is as often one as the other is not.
func TestPredictor(t *testing.T) {
	p := predict.New()
	feed := func(route uint64, chosen, times int) {
		for range times {
			p.Feed([]program.Choice{{Task: "/do/0/a", Route: route, Case: chosen}})
		}
	}
	wants := func(route uint64, want int, known bool) {
		t.Helper()
		if got, is := p.Guess("/do/0/a", route); is != known || known && got != want {
			t.Errorf("by route %d: %d %t, want %d %t", route, got, is, want, known)
		}
	}
	wants(1, 0, false)
	feed(1, 2, 9)
	feed(1, 0, 1)
	wants(1, 2, true)
	wants(7, 2, true) // a route that nobody has come by
	feed(2, 0, 10)
	wants(1, 2, true)
	wants(2, 0, true)
	wants(7, 0, false) // half of all
	feed(3, 1, 5)
	feed(3, 0, 4)
	wants(3, 0, false)
	feed(3, 1, 2)
	wants(3, 1, true)
	feed(2, 1, 40) // runs go elsewhere since
	wants(2, 1, true)
	if _, known := p.Guess("/do/1/b", 1); known {
		t.Error("another switch is guessed")
	}
	for route := range uint64(1000) {
		feed(100+route, 3, 1)
	}
	wants(1, 2, true)
	wants(5000, 3, true)
}
