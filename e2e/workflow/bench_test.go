package workflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

// known guesses that all functions answer the same.
type known struct{ a program.Answer }

func (k known) Answer(*program.Step) (program.Answer, bool) { return k.a, true }
func (k known) Case(string, uint64) (int, bool)             { return 0, true }

// What a run computes for one of its steps, and to look ten steps ahead.
func BenchmarkSteps(b *testing.B) {
	var tasks strings.Builder
	for i := range 12 {
		fmt.Fprintf(&tasks, "  - f%d: { call: http, with: { method: post, endpoint: 'http://f%d.shop/', body: { miss: '${ $workflow.input.miss }', way: '${ .way }', branch: true } } }\n", i, i)
		fmt.Fprintf(&tasks, "  - s%d: { switch: [ { y: { when: .way == \"y\", then: end } }, { x: { then: continue } } ] }\n", i)
	}
	p := compile(b, "do:\n"+tasks.String())
	state := p.Start("run", map[string]any{"miss": 0.5}, time.Now())
	said := known{answer(200, `{"way":"x"}`)}
	b.Run("step", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			state.Answer(state.Open()[0].ID, said.a, time.Now())
		}
	})
	b.Run("ahead", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if n := len(state.Ahead(said, 10, time.Now())); n != 10 {
				b.Fatal(n)
			}
		}
	})
}
