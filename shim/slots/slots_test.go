package slots_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/slots"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// instances are a node's, of one function.
type instances struct {
	mu      sync.Mutex
	ids     []string
	open    []string
	changed chan struct{}
}

func (i *instances) Serving(string) ([]string, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.ids), i.changed
}

func (i *instances) IsClosed(id string) bool { return !slices.Contains(i.open, id) }

func (i *instances) set(ids ...string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ids = ids
	close(i.changed)
	i.changed = make(chan struct{})
}

func of(ids ...string) *instances { return &instances{ids: ids, changed: make(chan struct{})} }

const function = "shop/prices"

// taking waits in the background, and notes in which order who has got what.
type taking struct {
	slots *slots.Slots
	mu    sync.Mutex
	got   []string
	free  map[string]func()
}

func (k *taking) take(name, bound string, a *attempt.Attempt) {
	go func() {
		instance, free, err := k.slots.Take(context.Background(), function, bound, a)
		k.mu.Lock()
		defer k.mu.Unlock()
		if err != nil {
			panic(err)
		}
		k.got, k.free[name] = append(k.got, name+"="+instance), free
	}()
	synctest.Wait()
}

func (k *taking) order() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.got, " ")
}

// frees gives back what some have got.
func (k *taking) frees(names ...string) {
	for _, name := range names {
		k.mu.Lock()
		free := k.free[name]
		k.mu.Unlock()
		free()
		synctest.Wait()
	}
}

// Each instance has one request. Those who wait get the next one that is free in the order in which they came, requests in their turn
// first; what is bound to an instance that takes no other requests gets that.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := of("1", "2")
		k := &taking{slots: slots.New(have), free: map[string]func(){}}
		ahead := attempt.New()
		for _, name := range []string{"a", "b"} {
			k.take(name, "", nil)
		}
		k.take("ahead", "", ahead)
		k.take("c", "", nil)
		k.take("d", "", nil)
		k.take("bound", "old", nil)
		if k.order() != "a=1 b=2 bound=old" {
			t.Fatal(k.order())
		}
		if all, turns, free := k.slots.Load(function); all != 2 || turns != 2 || free != 0 {
			t.Errorf("%d instances, %d at work, %d free", all, turns, free)
		}
		k.frees("b")
		have.set("1", "2", "3")
		synctest.Wait()
		k.frees("a")
		if k.order() != "a=1 b=2 bound=old c=2 d=3 ahead=1" {
			t.Fatal(k.order())
		}
		k.frees("c", "d", "ahead", "bound")
		if all, turns, free := k.slots.Load(function); all != 3 || turns != 0 || free != 3 {
			t.Errorf("%d instances, %d at work, %d free", all, turns, free)
		}
	})
}

// A request in its turn squashes an attempt to have its instance, unless that was adopted, and gets it when it is free.
func TestTurnsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := of("1", "2", "3")
		have.open = []string{"1"}
		k := &taking{slots: slots.New(have), free: map[string]func(){}}
		adopted, early, waits := attempt.New(), attempt.New(), attempt.New()
		k.take("adopted", "", adopted)
		adopted.Begin(func() {})
		_ = adopted.Adopt()
		k.take("early", "", early)
		early.Begin(func() {})
		k.take("waits", "", waits) // the one that is free is not closed
		k.take("first", "", nil)
		if k.order() != "adopted=2 early=3 first=1" || early.IsSquashed() {
			t.Fatal(k.order(), early.IsSquashed())
		}
		k.take("second", "", nil)
		if !early.IsSquashed() || adopted.IsSquashed() || waits.IsSquashed() {
			t.Error("the wrong one is squashed")
		}
		k.frees("early")
		if !strings.HasSuffix(k.order(), "first=1 second=3") {
			t.Error(k.order())
		}
		k.frees("adopted", "first", "second", "waits")
	})
}

// A request that waits hears when the last instance goes, so that it can have another one made. Attempts wait for that.
func TestTheLastInstanceGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		have := of("1")
		k := &taking{slots: slots.New(have), free: map[string]func(){}}
		k.take("a", "", nil)
		k.take("ahead", "", attempt.New())
		failed := make(chan error, 1)
		go func() {
			_, _, err := k.slots.Take(t.Context(), function, "", nil)
			failed <- err
		}()
		synctest.Wait()
		have.set()
		synctest.Wait()
		if err := <-failed; !errors.Is(err, slots.ErrNone) {
			t.Error(err)
		}
		k.frees("a")
		have.set("2")
		synctest.Wait()
		if k.order() != "a=1 ahead=2" {
			t.Error(k.order())
		}
		k.frees("ahead")
	})
}

// Whoever leaves, leaves nothing behind.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slots.New(of("1"))
		r := rand.New(rand.NewPCG(1, 1))
		var all sync.WaitGroup
		var mu sync.Mutex
		var at, most int
		for range 200 {
			ctx, cancel := context.WithCancelCause(context.Background())
			var a *attempt.Attempt
			if r.IntN(2) == 0 {
				a = attempt.New()
			}
			all.Go(func() {
				_, free, err := s.Take(ctx, function, "", a)
				if err != nil {
					if !errors.Is(err, attempt.ErrSquashed) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				at++
				most = max(most, at)
				mu.Unlock()
				time.Sleep(time.Millisecond) // of the test's own clock
				mu.Lock()
				at--
				mu.Unlock()
				free()
			})
			if r.IntN(3) == 0 {
				cancel(attempt.ErrSquashed)
			}
			t.Cleanup(func() { cancel(nil) })
		}
		all.Wait()
		if _, turns, free := s.Load(function); turns != 0 || free != 1 || most != 1 {
			t.Errorf("%d at work, %d free, %d at the same time", turns, free, most)
		}
	})
}
