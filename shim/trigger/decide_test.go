package trigger_test

import (
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/trigger"
)

func TestWhatBecomesOfAnEntry(t *testing.T) {
	fails := func(status int, title string) *problem.Problem {
		return problem.New(status, problem.Reason(title), "", "")
	}
	for name, test := range map[string]struct {
		status       int
		failure      *problem.Problem
		hopeless     bool
		tries, round int
		verdict      trigger.Verdict
		counts       bool
		pause        time.Duration
	}{
		"answered":                         {status: 200, tries: 1, verdict: trigger.Done},
		"answered with nothing":            {status: 204, tries: 9, verdict: trigger.Done},
		"a redirect":                       {status: 302, tries: 1, verdict: trigger.Again, counts: true, pause: time.Second},
		"refused":                          {status: 400, tries: 4, round: 4, verdict: trigger.Again, counts: true, pause: 8 * time.Second},
		"refused for the last time":        {status: 500, tries: 5, verdict: trigger.Dead, counts: true},
		"tried elsewhere more often":       {status: 500, tries: 9, verdict: trigger.Dead, counts: true},
		"the function failed":              {failure: fails(502, "FunctionFailed"), tries: 5, verdict: trigger.Dead, counts: true},
		"no such input":                    {failure: fails(404, "InputNotFound"), tries: 1, verdict: trigger.Again, counts: true, pause: time.Second},
		"no such input, for the last time": {failure: fails(404, "InputNotFound"), tries: 5, verdict: trigger.Dead, counts: true},
		"its node broke its answer off":    {failure: fails(502, "PeerFailed"), tries: 5, verdict: trigger.Dead, counts: true},
		"no buffer can have its input":     {failure: fails(507, "BufferTooSmall"), tries: 5, verdict: trigger.Dead, counts: true},
		"no reference":                     {failure: fails(400, "InputReferenceMalformed"), hopeless: true, tries: 1, verdict: trigger.Dead, counts: true},
		// Nobody got it, which speaks against no entry: no number of tries is too many.
		"no control plane":         {failure: fails(503, "ControlPlaneAway"), tries: 100, round: 100, verdict: trigger.Again, pause: 30 * time.Second},
		"a full buffer":            {failure: fails(507, "BufferFull"), tries: 100, round: 1, verdict: trigger.Again, pause: time.Second},
		"the program does not run": {failure: fails(502, "FunctionExited"), tries: 5, verdict: trigger.Again, pause: time.Second},
		"the function is gone":     {failure: fails(404, "FunctionUnknown"), tries: 5, verdict: trigger.Again, pause: time.Second},
		"the daemon is stopping":   {failure: fails(503, "DaemonStopping"), tries: 5, verdict: trigger.Again, pause: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			verdict, counts, pause, reason := trigger.Decide(test.status, test.failure, test.hopeless, test.tries, 5, max(1, test.round))
			if verdict != test.verdict || counts != test.counts || pause != test.pause {
				t.Errorf("%d, %t, %s; want %d, %t, %s", verdict, counts, pause, test.verdict, test.counts, test.pause)
			}
			want := "FunctionRefused"
			if test.failure != nil {
				want = test.failure.Title
			}
			if test.verdict == trigger.Done {
				want = ""
			}
			if reason != want {
				t.Errorf("because of %q, want %q", reason, want)
			}
		})
	}
}
