package faults_test

import (
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cluster/faults"
	"github.com/headstart-mesh/headstart/e2e/load"
)

// What the fault itself costs is not Headstart's, and what one function was spared does not
// make up for what another lost.
func TestOnlyTheExcessCounts(t *testing.T) {
	o := faults.Outcome{Name: "x",
		Hot:   faults.Pair{Function: load.Result{Sent: 100, Lost: 7}, Ordinary: load.Result{Sent: 100, Lost: 4}},
		Input: faults.Pair{Function: load.Result{Sent: 10, Lost: 1}, Ordinary: load.Result{Sent: 10, Lost: 5}},
		Odd:   load.Result{Sent: 20, Lost: 1}, Cold: faults.Cold{Sent: 5, Lost: 2, Refused: 1, Reasons: map[string]int{"503 Why: so": 3}},
		Broken: []string{"its word"}}
	if o.Lost() != 3+0+1+2 {
		t.Errorf("lost %d", o.Lost())
	}
	for _, part := range []string{"3 times: 503 Why: so", "BROKEN: its word"} {
		if !strings.Contains(o.String(), part) {
			t.Errorf("%q is not in %v", part, o)
		}
	}
	s := faults.Result{Outcomes: []faults.Outcome{o, o}}.Summary()
	for name, want := range map[string]float64{"requests_lost": 12, "requests_lost_raw": 22, "requests_lost_ordinary": 18, "cold_refused": 2,
		"promises_broken": 2, "lost_x": 6, "requests_sent": 270} {
		if s[name] != want {
			t.Errorf("%s is %v, want %v", name, s[name], want)
		}
	}
}
