// Package triggertest holds what every trigger.Stream must do, and one in memory.
package triggertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/trigger"
)

// Function is the function whose group the suite's consumers are in.
const Function = "default/fire"

const (
	// patience is how long a test waits for what must happen.
	patience = 20 * time.Second
	// never is longer than a test takes: nobody's entries change hands.
	never = time.Hour
	// soon is an idle time that a test can wait for.
	soon = 50 * time.Millisecond
)

// Rig is one stream, and the other side of it.
type Rig interface {
	// Open returns the part of a consumer of Function's group.
	Open(consumer string) trigger.Stream
	// Add puts an entry into the stream and returns its id.
	Add(t *testing.T, fields map[string]string) string
	// Pending are the entries that are taken and not acknowledged, by their ids, each with
	// its consumer.
	Pending(t *testing.T) map[string]string
	// Consumers are the group's that Open has named.
	Consumers(t *testing.T) []string
	// Dead are the dead letters, the oldest first.
	Dead(t *testing.T) []map[string]string
	// Lose has the stream lose all it knows, groups too.
	Lose(t *testing.T)
}

// Run holds the suite against the streams that rig makes, one for each case.
func Run(t *testing.T, rig func(*testing.T) Rig) {
	for name, test := range map[string]func(*testing.T, Rig){
		"entries are taken once each":                                            takenOnce,
		"entries of before the first consumer are taken":                         takenFromTheBeginning,
		"no more are taken than asked for":                                       noMore,
		"a consumer that is gone loses its entries":                              reclaimed,
		"one that is there keeps them":                                           kept,
		"an entry that is kept has its count":                                    again,
		"an entry is kept, also when it is told twice":                           keptTwice,
		"an entry that another has is not kept":                                  anothers,
		"an entry that is given back is at once another's, and counts as before": returned,
		"a dead letter has all that is known":                                    dead,
		"an entry is one dead letter, also when it is told twice":                buried,
		"a consumer leaves without entries only":                                 leaving,
		"the backlog is what is to be done":                                      backlog,
		"a stream that lost all goes on":                                         lost,
		"values are bytes":                                                       binary,
		"an entry that is too large comes without its fields":                    tooLarge,
		"no more come at a time than a node takes":                               bounded,
	} {
		t.Run(name, func(t *testing.T) { test(t, rig(t)) })
	}
}

// Collect takes entries until there are n.
func Collect(t *testing.T, s trigger.Stream, n int, idle time.Duration) []trigger.Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []trigger.Entry
	for len(all) < n {
		entries, err := s.Take(ctx, n-len(all), idle)
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(all), n, err)
		}
		all = append(all, entries...)
	}
	return all
}

func settle(t *testing.T, s trigger.Stream, f trigger.Fate) bool {
	t.Helper()
	mine, err := s.Settle(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return mine
}

// nothing takes once and wants none.
func nothing(t *testing.T, s trigger.Stream, idle time.Duration) {
	t.Helper()
	if entries, err := s.Take(t.Context(), 10, idle); len(entries) != 0 || err != nil {
		t.Errorf("took %v, %v", entries, err)
	}
}

func add(t *testing.T, r Rig, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, r.Add(t, map[string]string{"data": fmt.Sprint(i)}))
	}
	slices.Sort(ids)
	return ids
}

func idsOf(entries []trigger.Entry) (ids []string) {
	for _, e := range entries {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func takenOnce(t *testing.T, r Rig) {
	a, b := r.Open("a"), r.Open("b")
	nothing(t, a, never)
	ids := add(t, r, 6)
	first := Collect(t, a, 3, never)
	second := Collect(t, b, 3, never)
	same(t, "entries", ids, idsOf(append(first, second...)))
	for _, e := range append(first, second...) {
		if e.Tries != 1 {
			t.Errorf("%s was taken %d times", e.ID, e.Tries)
		}
	}
	for _, e := range first {
		settle(t, a, trigger.Fate{Verdict: trigger.Done, Entry: e})
	}
	for _, e := range second {
		settle(t, b, trigger.Fate{Verdict: trigger.Done, Entry: e})
	}
	same(t, "pending", map[string]string{}, r.Pending(t))
	nothing(t, a, 0)
}

func takenFromTheBeginning(t *testing.T, r Rig) {
	ids := add(t, r, 2)
	same(t, "entries", ids, idsOf(Collect(t, r.Open("a"), 2, never)))
}

func noMore(t *testing.T, r Rig) {
	a := r.Open("a")
	add(t, r, 5)
	Collect(t, a, 1, never)
	entries, err := a.Take(t.Context(), 2, never)
	if len(entries) != 2 || err != nil {
		t.Errorf("took %v, %v", entries, err)
	}
	b := r.Open("b")
	for rest := 5; rest > 0; {
		entries, err := b.Take(t.Context(), 2, time.Millisecond)
		if err != nil || len(entries) > 2 {
			t.Fatalf("took %d, %v", len(entries), err)
		}
		for _, e := range entries {
			settle(t, b, trigger.Fate{Verdict: trigger.Done, Entry: e})
		}
		rest -= len(entries)
	}
}

func reclaimed(t *testing.T, r Rig) {
	gone, here := r.Open("gone"), r.Open("here")
	ids := add(t, r, 25)
	entries := Collect(t, gone, 25, never)
	for _, e := range entries[:5] {
		settle(t, gone, trigger.Fate{Verdict: trigger.Done, Entry: e})
		ids = slices.DeleteFunc(ids, func(id string) bool { return id == e.ID })
	}
	got := Collect(t, here, 20, soon)
	same(t, "entries", ids, idsOf(got))
	for _, e := range got {
		if e.Tries != 2 || len(e.Fields) != 1 {
			t.Errorf("%s was taken %d times, and is %v", e.ID, e.Tries, e.Fields)
		}
	}
	want := map[string]string{}
	for _, id := range ids {
		want[id] = "here"
	}
	same(t, "pending", want, r.Pending(t))
}

func kept(t *testing.T, r Rig) {
	a, b := r.Open("a"), r.Open("b")
	ids := add(t, r, 1)
	Collect(t, a, 1, never)
	nothing(t, b, never)
	nothing(t, a, time.Nanosecond) // its own, though it rests
	same(t, "pending", map[string]string{ids[0]: "a"}, r.Pending(t))
}

func again(t *testing.T, r Rig) {
	a, b := r.Open("a"), r.Open("b")
	add(t, r, 1)
	e := Collect(t, a, 1, never)[0]
	e.Tries = 4
	if !settle(t, a, trigger.Fate{Verdict: trigger.Again, Entry: e}) {
		t.Error("the entry is not its consumer's")
	}
	if got := Collect(t, b, 1, soon)[0]; got.Tries != 5 || got.ID != e.ID {
		t.Errorf("got %+v", got)
	}
}

// keptTwice: of a server's answer that is lost nobody knows what was done.
func keptTwice(t *testing.T, r Rig) {
	a := r.Open("a")
	add(t, r, 1)
	e := Collect(t, a, 1, never)[0]
	taken := time.Now()
	time.Sleep(soon) // it has rested when it is first told, and not when it is told again
	for range 2 {
		if !settle(t, a, trigger.Fate{Verdict: trigger.Again, Entry: e, Rested: time.Since(taken)}) {
			t.Error("the entry is not its consumer's")
		}
	}
}

func anothers(t *testing.T, r Rig) {
	a, b := r.Open("a"), r.Open("b")
	add(t, r, 1)
	e := Collect(t, a, 1, never)[0]
	taken := time.Now()
	Collect(t, b, 1, soon)
	for _, v := range []trigger.Verdict{trigger.Again, trigger.Return} {
		if settle(t, a, trigger.Fate{Verdict: v, Entry: e, Rested: time.Since(taken), Idle: never}) {
			t.Errorf("verdict %d: the entry was taken back", v)
		}
	}
	same(t, "pending", map[string]string{e.ID: "b"}, r.Pending(t))
	// One that was acknowledged meanwhile is nobody's.
	settle(t, b, trigger.Fate{Verdict: trigger.Done, Entry: e})
	if settle(t, a, trigger.Fate{Verdict: trigger.Again, Entry: e}) {
		t.Error("an entry that is done was taken back")
	}
	same(t, "pending", map[string]string{}, r.Pending(t))
}

func returned(t *testing.T, r Rig) {
	a, b := r.Open("a"), r.Open("b")
	add(t, r, 1)
	e := Collect(t, a, 1, never)[0]
	e.Tries = 0
	if !settle(t, a, trigger.Fate{Verdict: trigger.Return, Entry: e, Idle: never}) {
		t.Error("the entry is not its consumer's")
	}
	if err := a.Leave(t.Context()); err != nil {
		t.Error(err)
	}
	if got := Collect(t, b, 1, never)[0]; got.Tries != 1 || got.ID != e.ID {
		t.Errorf("got %+v", got)
	}
}

func dead(t *testing.T, r Rig) {
	a := r.Open("a")
	id := r.Add(t, map[string]string{"data": "poison", "type": "fire"})
	e := Collect(t, a, 1, never)[0]
	e.Tries = 5
	settle(t, a, trigger.Fate{Verdict: trigger.Dead, Entry: e, Reason: "FunctionRefused", Detail: "the function answered 500"})
	same(t, "dead letters", []map[string]string{{"data": "poison", "type": "fire", "headstart-id": id, "headstart-function": Function,
		"headstart-tries": "5", "headstart-reason": "FunctionRefused", "headstart-detail": "the function answered 500"}}, r.Dead(t))
	same(t, "pending", map[string]string{}, r.Pending(t))
	nothing(t, a, 0)
}

// buried: of a server's answer that is lost nobody knows what was done.
func buried(t *testing.T, r Rig) {
	a := r.Open("a")
	r.Add(t, map[string]string{"data": "poison"})
	e := Collect(t, a, 1, never)[0]
	for range 2 {
		settle(t, a, trigger.Fate{Verdict: trigger.Dead, Entry: e, Reason: "FunctionRefused", Detail: "the function answered 500"})
	}
	if letters := r.Dead(t); len(letters) != 1 {
		t.Errorf("it is %d dead letters: %v", len(letters), letters)
	}
}

func leaving(t *testing.T, r Rig) {
	a, b := r.Open("a"), r.Open("b")
	nothing(t, b, never)
	add(t, r, 1)
	e := Collect(t, a, 1, never)[0]
	if err := a.Leave(t.Context()); err == nil {
		t.Error("a consumer left with an entry")
	}
	same(t, "pending", map[string]string{e.ID: "a"}, r.Pending(t))
	settle(t, a, trigger.Fate{Verdict: trigger.Done, Entry: e})
	// Its end may come just before a read.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := b.Take(ended, 1, never); !errors.Is(err, context.Canceled) {
		t.Errorf("a consumer that has ended took %v, %v", got, err)
	}
	for _, s := range []trigger.Stream{a, b, r.Open("never there")} {
		if err := s.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := r.Consumers(t); len(got) != 0 {
		t.Errorf("there are still %q", got)
	}
}

func backlog(t *testing.T, r Rig) {
	a := r.Open("a")
	want := func(b trigger.Backlog) {
		t.Helper()
		got, err := a.Backlog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, "backlog", b, got)
	}
	want(trigger.Backlog{})
	nothing(t, a, never)
	add(t, r, 5)
	e := Collect(t, a, 2, never)
	want(trigger.Backlog{Lag: 3, Pending: 2})
	settle(t, a, trigger.Fate{Verdict: trigger.Done, Entry: e[0]})
	want(trigger.Backlog{Lag: 3, Pending: 1})
}

func lost(t *testing.T, r Rig) {
	a := r.Open("a")
	add(t, r, 1)
	e := Collect(t, a, 1, never)[0]
	r.Lose(t)
	for _, v := range []trigger.Verdict{trigger.Done, trigger.Again, trigger.Return} {
		if mine, err := a.Settle(t.Context(), trigger.Fate{Verdict: v, Entry: e}); err != nil || mine && v != trigger.Done {
			t.Errorf("verdict %d: %t, %v", v, mine, err)
		}
	}
	ids := add(t, r, 2)
	same(t, "entries", ids, idsOf(Collect(t, a, 2, never)))
}

func binary(t *testing.T, r Rig) {
	want := map[string]string{"data": "\x00\xff\r\n", "": "empty", "Ünicode": ""}
	r.Add(t, want)
	got := Collect(t, r.Open("a"), 1, never)[0].Fields
	if !maps.Equal(want, got) {
		t.Errorf("got %q", got)
	}
}

// tooLarge is taken, so that somebody may bury it, and keeps no other back.
func tooLarge(t *testing.T, r Rig) {
	a := r.Open("a")
	for name, fields := range map[string]map[string]string{
		"by one value": {"data": strings.Repeat("x", trigger.TakeMost)},
		"by several":   {"a": strings.Repeat("x", trigger.TakeMost/2), "b": strings.Repeat("x", trigger.TakeMost/2)},
	} {
		small := map[string]string{"data": "x"}
		before, id, after := r.Add(t, small), r.Add(t, fields), r.Add(t, small)
		for _, e := range Collect(t, a, 3, never) {
			switch e.ID {
			case id:
				if !e.TooLarge || len(e.Fields) != 0 || e.Tries != 1 {
					t.Errorf("%s: it comes with %d fields, at try %d; too large: %t", name, len(e.Fields), e.Tries, e.TooLarge)
				}
				settle(t, a, trigger.Fate{Verdict: trigger.Dead, Entry: e, Reason: "EntryTooLarge"})
				dead := r.Dead(t)
				if last := dead[len(dead)-1]; last["headstart-id"] != id || last["headstart-reason"] != "EntryTooLarge" || len(last) != 5 {
					t.Errorf("%s: the dead letter is %.500q", name, last)
				}
			case before, after:
				if e.TooLarge || e.Fields["data"] != "x" {
					t.Errorf("%s: beside it comes %.500v", name, e)
				}
				settle(t, a, trigger.Fate{Verdict: trigger.Done, Entry: e})
			}
		}
		same(t, name+", pending", map[string]string{}, r.Pending(t))
	}
}

// bounded is what is read at a time, by whomever it was read before.
func bounded(t *testing.T, r Rig) {
	gone, here := r.Open("gone"), r.Open("here")
	want := map[string]bool{}
	for range 3 {
		want[r.Add(t, map[string]string{"data": strings.Repeat("x", trigger.TakeMost/2)})] = true
	}
	for _, s := range []trigger.Stream{gone, here} {
		idle := never
		if s == here {
			<-time.After(soon)
			idle = soon
		}
		got := map[string]bool{}
		for late := time.Now().Add(patience); len(got) < len(want) && time.Now().Before(late); {
			entries, err := s.Take(t.Context(), 3, idle)
			if err != nil {
				t.Fatal(err)
			}
			size := int64(0)
			for _, e := range entries {
				size += e.Size()
				got[e.ID] = true
			}
			if size > trigger.TakeMost {
				t.Errorf("%d bytes come at a time", size)
			}
		}
		same(t, "entries", want, got)
	}
}
