//go:build integration

package local

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/e2e/functions/query/image"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// stateful is a function of an unmodified program with a client of a destination of Redis, which may run ahead.
func stateful(name, destination string, command ...string) testbed.Function {
	f := speculative(name)
	f.Image, f.Command = image.Ref, command
	f.Template = map[string]string{filterapi.AnnotationConnections: destination}
	f.Env = map[string]string{"REDIS_URL": "unix:///headstart/socket/" + destination + "/redis.sock"}
	return f
}

// Functions that write a store run ahead: others see what they write when it is its turn, all of it once, also if they
// write the same meanwhile.
func TestAWorkflowRunsAheadOnAStore(t *testing.T) {
	deploy(t, speculative("state-slow"))
	deploy(t, stateful("state-go", "sessions"))
	deploy(t, stateful("state-py", "sessions-inside", slices.Concat(image.Python, []string{"serve"})...))
	reader := stateful("state-reader", "sessions")
	reader.Annotations = nil
	deploy(t, reader)
	for name, ms := range map[string]int{"state": 300, "state-late": 3000} {
		deployWorkflow(t, name, fmt.Sprintf(`  - slow: { call: http, with: { method: post, endpoint: 'http://state-slow.default/say?ms=%d', body: '${ . }' } }
  - go: { call: http, with: { method: post, endpoint: 'http://state-go.default/redis?q=INCR+ahead:go' } }
  - py: { call: http, with: { method: post, endpoint: 'http://state-py.default/redis?q=INCR+ahead:py' } }
`, ms))
	}
	get := func(key string) int {
		t.Helper()
		n, err := strconv.Atoi(mustQuery(t, "state-reader", "/redis", "GET "+key))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	mustQuery(t, "state-reader", "/redis", "MSET ahead:go 0 ahead:py 0")
	runs := 0
	run := func(name string) string {
		t.Helper()
		a, err := call{function: name, body: strings.NewReader(`{"n":1}`)}.do(t.Context())
		runs++
		if want := fmt.Sprintf(`{"error":"","said":"%d"}`, runs); err != nil || a.status != http.StatusOK || strings.TrimSpace(string(a.body)) != want {
			t.Fatalf("%d %s, %v, want %s", a.status, a.body, err, want)
		}
		if g, p := get("ahead:go"), get("ahead:py"); g != runs || p != runs {
			t.Fatalf("after %d runs the store has %d and %d", runs, g, p)
		}
		return a.header.Get(filterapi.HeaderRequest)
	}
	run("state")
	eventually(t, "the functions run ahead", func() error {
		steps := stepsOf(t, run("state"), 3)
		for _, name := range []string{"go", "py"} {
			if s := steps[name]; !s.ahead || !s.start.Before(steps["slow"].end) {
				return fmt.Errorf("%s: %v, the first: %v", name, s, steps["slow"])
			}
		}
		return nil
	})

	// While a run is on its way, others see nothing of it, and may write what it has read.
	run("state-late")
	scripts := func() (n int) { // how often the buffer has read the store, or written it
		_, after, _ := strings.Cut(mustQuery(t, "state-reader", "/redis", "INFO commandstats"), "cmdstat_evalsha:calls=")
		_, _ = fmt.Sscanf(after, "%d", &n)
		return n
	}
	before := scripts()
	done := make(chan error, 1)
	go func() {
		a, err := call{function: "state-late", body: strings.NewReader(`{"n":1}`)}.do(t.Context())
		if want := `{"error":"","said":"1001"}`; a.status != http.StatusOK || strings.TrimSpace(string(a.body)) != want {
			err = errors.Join(err, fmt.Errorf("%d %s, want %s", a.status, a.body, want))
		}
		done <- err
	}()
	eventually(t, "both functions have read", func() error {
		if n := scripts(); n < before+2 {
			return fmt.Errorf("%d reads, before them %d", n, before)
		}
		return nil
	})
	if n := get("ahead:go"); n != runs {
		t.Errorf("others see %d, want %d", n, runs)
	}
	mustQuery(t, "state-reader", "/redis", "MSET ahead:go 1000 ahead:py 1000")
	if err := <-done; err != nil {
		t.Error(err)
	}
	if squashed, err := bed.Metric(t.Context(), testbed.Edge, `headstart_workflow_ahead_total{result="state",workflow="default/state-late"}`); err != nil || squashed < 1 {
		t.Errorf("%g calls were squashed for what they had read: %v", squashed, err)
	}
}

// results are how often calls have run ahead, by what has come of them.
func results(t *testing.T, workflow string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, result := range []string{"adopted", "wrong", "state", "idle", "failed", "end"} {
		n, err := bed.Metric(t.Context(), testbed.Edge, fmt.Sprintf(`headstart_workflow_ahead_total{result=%q,workflow="default/%s"}`, result, workflow))
		if err == nil { // else there are none
			all[result] = n
		}
	}
	return all
}

// A program that works on when it has answered is found, and named. From then on it works in its turn.
func TestAProgramThatWorksOn(t *testing.T) {
	deploy(t, speculative("on-slow"))
	deploy(t, stateful("on-late", "sessions"))
	deployWorkflow(t, "works-on", `  - slow: { call: http, with: { method: post, endpoint: 'http://on-slow.default/say?ms=500', body: '${ . }' } }
  - late: { call: http, with: { method: post, endpoint: 'http://on-late.default/redis?q=INCR+on:first&late=INCR+on:late' } }
`)
	run := func() step {
		t.Helper()
		a, err := call{function: "works-on", body: strings.NewReader(`{"n":1}`)}.do(t.Context())
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s, %v", a.status, a.body, err)
		}
		return stepsOf(t, a.header.Get(filterapi.HeaderRequest), 2)["late"]
	}
	found := func() bool {
		return slices.ContainsFunc(function(t, "on-late").Events, func(e event.Event) bool { return e.Reason == "WorksAfterAnswer" })
	}
	ahead := false
	runs := 0
	eventually(t, "it is found", func() error {
		runs++
		if ahead = ahead || run().ahead; !found() {
			return fmt.Errorf("in %d runs it has run ahead: %t; results %v, events %+v", runs, ahead, results(t, "works-on"), function(t, "on-late").Events)
		}
		return nil
	})
	if s := run(); !ahead || s.ahead {
		t.Errorf("it has run ahead: %t, and does so still: %t", ahead, s.ahead)
	}
}
