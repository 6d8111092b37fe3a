//go:build integration

package workflow_test

import (
	"fmt"
	"testing"
	"time"
)

// What the runs of one node have taught, another one knows: its first run of an input has functions work ahead.
func TestNodesLearnFromEachOther(t *testing.T) {
	a, b := nodes(t, map[string]func(string) string{"a": adds("a"), "b": adds("b")})
	f := noting(task("a"), task("b"))
	const inputs = 20
	told := a.writes(t, "headstart:learned:*")
	for n := range inputs {
		a.run(f, fmt.Sprint(n))
	}
	<-told
	ahead := false
	for n := 1; n < inputs && !ahead; n++ { // the first ones may begin before the node has heard of anything
		b.run(f, fmt.Sprint(n))
		ahead = len(b.attempts) > 0
		b.wantSettled()
	}
	if !ahead {
		t.Error("no function has worked ahead of a run that another node had before")
	}
	a.Close()
	b.Close()
	if len(a.events)+len(b.events) > 0 {
		t.Errorf("events %v, %v", a.events, b.events)
	}
}

// A store that does not take what runs teach is said once, and no run waits for it.
func TestAStoreThatTakesNoLessons(t *testing.T) {
	a, _ := nodes(t, map[string]func(string) string{"a": adds("a")})
	_ = a.redis.Close()
	f := noting(task("a"))
	for began := time.Now(); time.Since(began) < 2500*time.Millisecond; {
		if got, _ := a.run(f, "1"); got != `[1,"a"]` {
			t.Fatal(got)
		}
	}
	a.Close()
	if len(a.events) != 1 || a.events[0].GetReason() != "LearningNotShared" || a.events[0].GetFunction() != "shop/checkout" {
		t.Errorf("events %v", a.events)
	}
}
