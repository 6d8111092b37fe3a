package faults

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// All losses count but those that the docs allow: what a Service that is not opted in loses
// makes up for nothing.
func TestLossesCount(t *testing.T) {
	o := Outcome{Name: "x",
		Hot:   Pair{Function: load.Result{Sent: 100, Lost: 7}, Ordinary: load.Result{Sent: 100, Lost: 4}},
		Input: Pair{Function: load.Result{Sent: 10, Lost: 1}, Ordinary: load.Result{Sent: 10, Lost: 5}},
		Odd:   load.Result{Sent: 20, Lost: 1}, Cold: Cold{Sent: 5, Lost: 2, Refused: map[string]int{"Why": 1}, Reasons: map[string]int{"503 Why: so": 3}},
		Broken: []string{"its word"}}
	if o.Lost() != 7+1+1+2 {
		t.Errorf("lost %d", o.Lost())
	}
	for _, part := range []string{"3 times: 503 Why: so", "BROKEN: its word"} {
		if !strings.Contains(o.String(), part) {
			t.Errorf("%q is not in %v", part, o)
		}
	}
	s := Result{Outcomes: []Outcome{o, o}}.Summary()
	for name, want := range map[string]float64{"requests_lost": 22, "requests_lost_ordinary": 18, "cold_refused": 2,
		"promises_broken": 2, "lost_x": 11, "requests_sent": 270} {
		if s[name] != want {
			t.Errorf("%s is %v, want %v", name, s[name], want)
		}
	}
}

// A cold request may be refused as the fault allows: with such a problem, of so many functions, as soon.
func TestRefusalsCount(t *testing.T) {
	told := func(title string, took time.Duration) answer {
		return answer{status: http.StatusServiceUnavailable, took: took, problem: problem.Problem{Title: title}}
	}
	late := told("Late", 30*time.Second)
	refusals := []refusal{{title: "Away", within: 16 * time.Second}, {title: "Late", most: 1, within: 32 * time.Second}}
	c := newCold()
	for _, one := range []struct {
		function string
		answer
	}{
		{"a", answer{status: http.StatusOK}},
		{"a", told("Away", time.Second)}, {"b", told("Away", time.Second)},
		{"a", late}, {"a", late}, // its pod does not start
		{"b", told("Away", time.Minute)}, // lost: too late
		{"b", late},                      // lost: the second function
		{"b", told("Other", time.Second)},
		{"b", answer{status: http.StatusOK}},
	} {
		c.note(one.function, one.answer, true, refusals)
	}
	if c.Sent != 9 || c.AtZero != 9 || c.Lost != 3 || c.Refused["Away"] != 2 || c.Refused["Late"] != 2 || c.LongestRefusal != 30*time.Second {
		t.Errorf("%+v", c)
	}
	other := newCold() // of the same fault
	other.note("c", told("Away", time.Second), true, refusals)
	other.note("c", told("Late", time.Second), true, refusals)
	if c.add(other, refusals); c.Sent != 11 || c.Lost != 4 || c.Refused["Away"] != 3 || c.Refused["Late"] != 2 {
		t.Errorf("of both: %+v", c)
	}
	same := newCold()
	same.note("a", late, true, refusals)
	if c.add(same, refusals); c.Lost != 4 || c.Refused["Late"] != 3 {
		t.Errorf("with more of the same function: %+v", c)
	}
}

// The core is a part of all, in the same order.
func TestCore(t *testing.T) {
	rest := Names()
	for _, name := range Core() {
		i := slices.Index(rest, name)
		if i < 0 {
			t.Fatalf("%s is not among %v", name, rest)
		}
		rest = rest[i+1:]
	}
	if len(Core()) == 0 || len(Core()) > len(Names())/2 {
		t.Errorf("the core is %v", Core())
	}
}
