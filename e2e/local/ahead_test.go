//go:build integration

package local

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// speculative is a function that may run ahead.
func speculative(name string) testbed.Function {
	return testbed.Function{Name: name, Node: testbed.Edge, Annotations: map[string]string{filterapi.AnnotationSpeculation: "allowed"}}
}

// step is what the trace of a run has of one of its calls.
type step struct {
	start, end time.Time
	ahead      bool
}

// stepsOf are the calls of a run by their tasks, as soon as its trace has so many.
func stepsOf(t *testing.T, request string, count int) map[string]step {
	t.Helper()
	var steps map[string]step
	eventually(t, "the calls are in trace "+request, func() error {
		steps = map[string]step{}
		for _, s := range spansOf(t, request).Spans {
			if s.Name == tracing.Step {
				task := fmt.Sprint(s.Attributes[string(tracing.WorkflowTask)])
				steps[task[strings.LastIndex(task, "/")+1:]] = step{s.Start, s.End, s.Attributes[string(tracing.Ahead)] == true}
			}
		}
		if len(steps) != count {
			return fmt.Errorf("steps %v", steps)
		}
		return nil
	})
	return steps
}

// Functions that answer as they did before work at the same time, although each gets what the one before it answers; those that may
// not wait for their turn. The run answers the same.
func TestAWorkflowRunsAhead(t *testing.T) {
	tasks := ""
	for _, name := range []string{"ahead-a", "ahead-b", "ahead-c"} {
		deploy(t, speculative(name))
		tasks += fmt.Sprintf("  - %s: { call: http, with: { method: post, endpoint: 'http://%s.default/say?ms=300', body: '${ { said: . } }' } }\n", name, name)
	}
	deploy(t, testbed.Function{Name: "ahead-never", Node: testbed.Edge})
	tasks += "  - never: { call: http, with: { method: post, endpoint: 'http://ahead-never.default/say?ms=10', body: '${ . }' } }\n"
	deployWorkflow(t, "ahead", tasks)
	run := func(node, body string) string {
		t.Helper()
		a, err := call{node: node, function: "ahead", body: strings.NewReader(body)}.do(t.Context())
		if want := `{"said":{"said":{"said":` + body + `}}}`; err != nil || a.status != http.StatusOK || strings.TrimSpace(string(a.body)) != want {
			t.Fatalf("%d %s, %v, want %s", a.status, a.body, err, want)
		}
		return a.header.Get(filterapi.HeaderRequest)
	}
	run(testbed.Edge, `{"n":1}`)
	eventually(t, "the functions run ahead", func() error {
		steps := stepsOf(t, run(testbed.Edge, `{"n":1}`), 4)
		for _, name := range []string{"ahead-b", "ahead-c"} {
			if s := steps[name]; !s.ahead || !s.start.Before(steps["ahead-a"].end) {
				return fmt.Errorf("%s: %v, the first: %v", name, s, steps["ahead-a"])
			}
		}
		if s := steps["never"]; s.ahead || s.start.Before(steps["ahead-c"].end) {
			return fmt.Errorf("the one without the annotation: %v, the one before: %v", s, steps["ahead-c"])
		}
		return nil
	})
	if steps := stepsOf(t, run(testbed.Edge, `{"n":2}`), 4); steps["ahead-b"].ahead || steps["ahead-c"].ahead {
		t.Errorf("with another input: %v", steps)
	}
	run(testbed.Cloud, `{"n":1}`) // where there are no instances
}

// Nothing leaves the sandbox of a function that may run ahead but its answers.
func TestAClosedSandbox(t *testing.T) {
	deploy(t, speculative("ahead-closed"))
	deploy(t, testbed.Function{Name: "ahead-open", Node: testbed.Edge})
	s3 := strings.TrimPrefix(bed.S3.Endpoint, "http://")
	for name, want := range map[string]string{"ahead-open": "connected", "ahead-closed": "connection refused"} {
		a, err := call{function: name, path: "/dial?to=" + s3}.do(t.Context())
		if err != nil || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d %s, %v, want %s", name, a.status, a.body, err, want)
		}
		a, err = call{function: name, path: "/dial?to=127.0.0.1:8080"}.do(t.Context())
		if err != nil || !strings.Contains(string(a.body), "connected") {
			t.Errorf("%s: to itself: %d %s, %v", name, a.status, a.body, err)
		}
	}
}

// An instance of a function that may run ahead has one request at a time, and there are more of them when all are at work.
func TestOneRequestAtATime(t *testing.T) {
	f := speculative("ahead-one")
	f.Template = map[string]string{"autoscaling.knative.dev/max-scale": "2"}
	deploy(t, f)
	const most, callers = 2, 6
	var enough atomic.Bool // a node whose processors are busy starts another one only when requests have waited for long
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for !enough.Load() {
				a, err := call{function: "ahead-one", path: "/sleep?ms=300"}.do(t.Context())
				if err != nil || a.status != http.StatusOK {
					t.Errorf("%d %s, %v", a.status, a.body, err)
					return
				}
			}
		})
	}
	defer calls.Wait()
	defer enough.Store(true)
	eventually(t, "there are two instances", func() error {
		if n := len(function(t, "ahead-one").Instances); n != most {
			return fmt.Errorf("%d instances", n)
		}
		return nil
	})
	enough.Store(true)
	calls.Wait()
	if n := len(function(t, "ahead-one").Instances); n > most {
		t.Errorf("%d instances", n)
	}
}
