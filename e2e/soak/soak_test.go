//go:build integration

package soak

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/headstart-mesh/headstart/e2e/soak/plan"
)

// Whatever goes wrong, each request is answered right or fails clearly, no function gets one
// twice, and nothing is left.
func TestSoak(t *testing.T) {
	w := open(t, plan.Plan{Seed: *seed})
	before := map[*node]amount{}
	for _, n := range []*node{w.edge, w.cloud} {
		var err error
		if before[n], err = w.holds(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	results := w.soak()
	t.Logf("%d requests in %s\n%s", results.total, time.Since(began).Round(time.Second), results)
	if t.Failed() {
		t.Logf("again: go test -tags integration ./e2e/soak -args -seed %d -requests %d", *seed, results.total)
	}
	if err := w.streams.nothingLeft(t.Context()); err != nil {
		t.Error("left in the streams:", err)
	}
	for _, way := range append(slices.Collect(maps.Values(w.ways)), w.streams.way) {
		way.Hang()
	}
	for n, had := range before {
		if err := w.closeCaller(n); err != nil {
			t.Error(err)
		}
		if err := w.nothingLeft(n, had); err != nil {
			t.Errorf("left on %s: %v", n.name, err)
		}
	}
	if err := w.nothingInRedis(); err != nil {
		t.Error("left in Redis:", err)
	}
}

// soak sends the requests and returns what became of them.
func (w *world) soak() *tally {
	results := &tally{counts: map[string]int{}}
	room := semaphore.NewWeighted(underWay)
	numbers := make(chan int)
	var working sync.WaitGroup
	for range *workers {
		working.Go(func() {
			for number := range numbers {
				c := w.plan.Case(number)
				need := max(c.Size, 1)
				if c.Chunked {
					need += bodyStep
				}
				need = min(need, underWay)
				if c.Fault == plan.BufferFull {
					need = 1 // it is not there
				}
				_ = room.Acquire(context.Background(), need) // it never ends
				w.one(number, results)
				room.Release(need)
			}
		})
	}
	began := time.Now()
	for n := *first; ; n++ {
		if *lasting == 0 && n-*first == *requests || *lasting > 0 && time.Since(began) > *lasting || results.hopeless() {
			break
		}
		numbers <- n
	}
	close(numbers)
	working.Wait()
	return results
}

// one has a case's event happen, and runs it.
func (w *world) one(number int, results *tally) {
	if w.plan.Event(number) == plan.RedisRestarts {
		if err := w.restartRedis(); err != nil {
			w.t.Error(err)
		}
	}
	o, c, err := w.do(number)
	results.add(c, o, err)
	if err != nil {
		w.t.Errorf("seed %d, case %d: %s\n%+v\nit ended with: %s\n%s", w.plan.Seed, number, joined(err), c, o, w.log.about(c.ID))
	}
}

// tally counts how cases ended, by their faults.
type tally struct {
	mu            sync.Mutex
	counts        map[string]int
	total, failed int
}

// enough is how many wrong cases are enough to look at.
const enough = 20

func (r *tally) add(c plan.Case, o outcome, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	if err != nil {
		r.failed++
	}
	r.counts[fmt.Sprintf("%-22s %-8s %s", c.Fault, c.Way, o.short())]++
}

func (r *tally) hopeless() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed >= enough
}

func (r *tally) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(r.counts)) {
		fmt.Fprintf(&b, "%6d  %s\n", r.counts[k], k)
	}
	return b.String()
}
