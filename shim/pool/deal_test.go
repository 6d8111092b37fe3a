package pool

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

type none struct{}

func (none) Watch(context.Context) error { return nil }
func (none) Close() error                { return nil }

// What is dealt at once is what comes of dealing one by one, and only lines look again whose share is another one.
func TestDealtAtOnceAsOneByOne(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		d := &destination[none]{}
		for i := range random.IntN(12) {
			key := Key{Namespace: fmt.Sprint(random.IntN(4)), Function: fmt.Sprint(i)}
			d.lines = append(d.lines, &line[none]{key: key, changed: make(chan struct{}, 1)})
		}
		slices.SortFunc(d.lines, func(a, b *line[none]) int { return a.compare(b.key) })
		for range 5 {
			before := map[*line[none]]int{}
			for _, l := range d.lines {
				l.wants = random.IntN(keptMost + 1)
				before[l] = l.share
			}
			d.allowed = random.IntN(30)
			d.deal()
			dealt, namespaces := map[*line[none]]int{}, map[string]int{}
			for range d.allowed {
				var next *line[none]
				for _, l := range d.lines {
					if dealt[l] < l.wants && (next == nil || cmp.Or(
						cmp.Compare(namespaces[l.key.Namespace], namespaces[next.key.Namespace]), cmp.Compare(dealt[l], dealt[next])) < 0) {
						next = l
					}
				}
				if next == nil {
					break
				}
				dealt[next]++
				namespaces[next.key.Namespace]++
			}
			for _, l := range d.lines {
				if looks := len(l.changed) > 0; l.share != dealt[l] || looks != (l.share != before[l]) {
					t.Fatalf("seed %d: %v gets %d, want %d; before %d, looks %t", seed, l.key, l.share, dealt[l], before[l], looks)
				}
				select {
				case <-l.changed:
				default:
				}
			}
		}
	}
}
