package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/e2e/load"
)

// Pair is the same load on a function and on a Service that is not opted in.
type Pair struct{ Function, Ordinary load.Result }

// Outcome is what one fault cost.
type Outcome struct {
	Name string
	Took time.Duration
	// Hot are requests that have an instance and no input, Input such that have one.
	Hot, Input Pair
	// Cold are requests to functions without an instance.
	Cold Cold
	// Odd is the load on a function that a scenario has for itself, if it has one.
	Odd load.Result
	// Broken are promises that were not kept.
	Broken []string
	// Recovery is how long after the fault's end cold requests were answered again, for
	// faults that keep them from it.
	Recovery time.Duration
}

// Lost is how many requests have failed that may not, whatever has become of an ordinary
// Service's.
func (o Outcome) Lost() int {
	return o.Hot.Function.Lost + o.Input.Function.Lost + o.Odd.Lost + o.Cold.Lost
}

// broken notes a promise that was not kept.
func (o *Outcome) broken(format string, args ...any) {
	o.Broken = append(o.Broken, fmt.Sprintf(format, args...))
}

// String is the outcome for people: figures, then what was wrong with whom.
func (o Outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %.0f s, lost %d; hot %s, with input %s, cold %s", o.Name, o.Took.Seconds(), o.Lost(), o.Hot, o.Input, o.Cold)
	if o.Odd.Sent > 0 {
		fmt.Fprintf(&b, ", changed function %d of %d", o.Odd.Lost, o.Odd.Sent)
	}
	if o.Recovery > 0 {
		fmt.Fprintf(&b, ", cold requests again after %.1f s", o.Recovery.Seconds())
	}
	for _, who := range []struct {
		name    string
		reasons map[string]int
	}{{"hot", o.Hot.Function.Reasons}, {"hot, ordinary", o.Hot.Ordinary.Reasons}, {"with input", o.Input.Function.Reasons},
		{"with input, ordinary", o.Input.Ordinary.Reasons}, {"changed function", o.Odd.Reasons}, {"cold", o.Cold.Reasons}} {
		for _, reason := range slices.Sorted(maps.Keys(who.reasons)) {
			fmt.Fprintf(&b, "\n    %s: %d times: %s", who.name, who.reasons[reason], strings.TrimSpace(reason))
		}
	}
	for _, promise := range o.Broken {
		fmt.Fprintf(&b, "\n    BROKEN: %s", promise)
	}
	return b.String()
}

func (p Pair) String() string {
	return fmt.Sprintf("%d of %d (ordinary %d of %d)", p.Function.Lost, p.Function.Sent, p.Ordinary.Lost, p.Ordinary.Sent)
}

// Result is what all faults cost.
type Result struct{ Outcomes []Outcome }

// Summary is the result in figures, by name.
func (r Result) Summary() map[string]float64 {
	s := map[string]float64{}
	for _, o := range r.Outcomes {
		s["requests_lost"] += float64(o.Lost())
		s["requests_sent"] += float64(o.Hot.Function.Sent + o.Input.Function.Sent + o.Odd.Sent + o.Cold.Sent)
		s["requests_lost_ordinary"] += float64(o.Hot.Ordinary.Lost + o.Input.Ordinary.Lost)
		s["cold_sent"] += float64(o.Cold.Sent)
		s["cold_lost"] += float64(o.Cold.Lost)
		s["cold_refused"] += float64(o.Cold.refused())
		s["promises_broken"] += float64(len(o.Broken))
		s["lost_"+o.Name] = float64(o.Lost())
		if o.Name == scaleToN {
			s["scale_to_n_lost"] = float64(o.Odd.Lost)
		}
		if o.Recovery > 0 {
			s["recovery_s_"+o.Name] = o.Recovery.Seconds()
		}
	}
	return s
}
