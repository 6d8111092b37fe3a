package event

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTheSameAgainOnlyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Log
		first := time.Now()
		l.Add("default/fire", Event{Reason: "InputNotFound", Message: "no such object"})
		l.Add("default/fire", Event{Reason: "ReadyTimeout", Message: "not ready"})
		time.Sleep(time.Minute)
		l.Add("default/fire", Event{Reason: "InputNotFound", Message: "no such object"})

		got := l.Of("default/fire")
		if len(got) != 2 {
			t.Fatalf("got %d events, want 2: %+v", len(got), got)
		}
		last := got[1]
		if last.Reason != "InputNotFound" || last.Count != 2 || !last.First.Equal(first) || !last.Last.Equal(first.Add(time.Minute)) {
			t.Errorf("repeated event is %+v", last)
		}
	})
}

func TestAFunctionCannotFillTheLog(t *testing.T) {
	var l Log
	for i := range 3 * perFunction {
		l.Add("default/noisy", Event{Reason: "R", Message: fmt.Sprint(i, strings.Repeat("x", 2*textMost))})
	}
	got := l.Of("default/noisy")
	if len(got) != perFunction {
		t.Errorf("kept %d events, want %d", len(got), perFunction)
	}
	if m := got[len(got)-1].Message; len(m) != textMost || !strings.HasPrefix(m, fmt.Sprint(3*perFunction-1)) {
		t.Errorf("the latest message has %d bytes and begins %.6q", len(m), m)
	}
}

func TestADeletedFunctionIsForgotten(t *testing.T) {
	var l Log
	l.Add("default/fire", Event{Reason: "R"})
	l.Forget("default/fire")
	if got := l.Of("default/fire"); len(got) != 0 {
		t.Errorf("still there: %+v", got)
	}
}

func TestALongTextEndsWithAWholeCharacter(t *testing.T) {
	var l Log
	long := strings.Repeat("x", textMost-1) + "é"
	l.Add("default/fire", Event{Reason: long, Message: long, Field: long})
	want := strings.Repeat("x", textMost-1)
	if e := l.Of("default/fire")[0]; e.Reason != want || e.Message != want || e.Field != want {
		t.Errorf("kept %+v", e)
	}
}

// The caller may do with them what it likes.
func TestEventsAreACopy(t *testing.T) {
	var l Log
	l.Add("default/fire", Event{Reason: "R"})
	l.Of("default/fire")[0].Reason = "changed"
	if got := l.Of("default/fire")[0].Reason; got != "R" {
		t.Errorf("the log says %q", got)
	}
}

func TestFunctionsCannotFillTheLog(t *testing.T) {
	var l Log
	for i := range functionsMost + 1 {
		l.Add(fmt.Sprint("default/f", i), Event{Reason: "R"})
	}
	l.Add("default/f0", Event{Reason: "again"})
	if known, late := len(l.Of("default/f0")), len(l.Of(fmt.Sprint("default/f", functionsMost))); known != 2 || late != 0 {
		t.Errorf("%d events of a function that has some, %d of one too many", known, late)
	}
}

// What an instance has logged last comes after the news of its end, and is the latest one's.
func TestTheLastLinesOfAnInstance(t *testing.T) {
	var l Log
	exited := func(instance string) {
		l.Add("default/fire", Event{Reason: "FunctionExited", Node: "edge", Instance: instance})
	}
	exited("one")
	l.Explain("cloud", "one", []string{"another node's word"})
	if got := l.Of("default/fire")[0].Log; got != nil {
		t.Errorf("before: %q", got)
	}
	l.Explain("edge", "one", []string{"no database"})
	exited("two")
	l.Explain("edge", "two", []string{"no memory"})
	l.Explain("edge", "unknown", []string{"x"})
	if e := l.Of("default/fire"); len(e) != 1 || e[0].Count != 2 || e[0].Instance != "two" || !slices.Equal(e[0].Log, []string{"no memory"}) {
		t.Errorf("kept %+v", e)
	}
	// A trace of the earlier one still finds its own.
	if got := l.LastLines("one"); !slices.Equal(got, []string{"no database"}) {
		t.Errorf("of the first: %q", got)
	}
	for i := range instancesMost {
		exited(fmt.Sprint("more-", i))
	}
	if got := l.LastLines("one"); got != nil {
		t.Errorf("instances fill the log: %q", got)
	}
	l.Forget("default/fire")
	if l.LastLines("two") != nil || len(l.ended) != 0 {
		t.Errorf("a deleted function's are kept: %+v", l.ended)
	}
}
