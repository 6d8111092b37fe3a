//go:build integration

package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// workflowOf is the manifest of a workflow with these tasks.
func workflowOf(name, tasks string) string {
	return fmt.Sprintf(`apiVersion: headstart.dev/v1alpha1
kind: Workflow
metadata: { name: %s }
spec:
  document: { dsl: '1.0.0', namespace: default, name: %s, version: '1.0.0' }
  do:
%s`, name, name, tasks)
}

// deployWorkflow applies it, until the test ends.
func deployWorkflow(t *testing.T, name, tasks string) {
	t.Helper()
	deployWorkflowWith(t, name, "", tasks)
}

// deployWorkflowWith applies one with annotations.
func deployWorkflowWith(t *testing.T, name, annotations, tasks string) {
	t.Helper()
	manifest := strings.Replace(workflowOf(name, tasks), "{ name: "+name+" }", "{ name: "+name+", annotations: { "+annotations+" } }", 1)
	if _, err := bed.Client().Apply(t.Context(), strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Client().Delete(context.Background(), "default/"+name); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
}

// A workflow is called as a function is, by either node's gateway; its functions are started for it, on whichever node they are, and
// all of it is one trace.
func TestAWorkflow(t *testing.T) {
	deploy(t, testbed.Function{Name: "wf-near", Node: testbed.Edge})
	deploy(t, testbed.Function{Name: "wf-far", Node: testbed.Cloud})
	deployWorkflow(t, "wf", `  - both:
      fork:
        branches:
        - near: { call: http, with: { method: post, endpoint: 'http://wf-near.default/', body: '${ . }' } }
        - far: { call: http, with: { method: post, endpoint: 'http://wf-far.default/{what}', body: '${ . }' } }
      output: { as: '{ paths: map(.path), bytes: map(.body.bytes) }' }
  - which:
      switch:
      - much: { when: '(.bytes | add) > 1000', then: much }
      - little: { then: end }
  - much: { set: { much: '${ .bytes | add }' } }
`)
	for _, node := range []string{testbed.Edge, testbed.Cloud} {
		a, err := call{node: node, function: "wf", body: strings.NewReader(`{"what":"x y"}`)}.do(t.Context())
		if err != nil || a.status != http.StatusOK || strings.TrimSpace(string(a.body)) != `{"bytes":[14,14],"paths":["/","/x%20y"]}` {
			t.Fatalf("by node %s: %d %s, %v", node, a.status, a.body, err)
		}
		id := a.header.Get(filterapi.HeaderRequest)
		eventually(t, "the calls are in trace "+id, func() error {
			var tasks []string
			for _, s := range spansOf(t, id).Spans {
				if s.Name == tracing.Step {
					tasks = append(tasks, fmt.Sprint(s.Attributes[string(tracing.WorkflowTask)]))
				}
			}
			if len(tasks) != 2 || !strings.Contains(strings.Join(tasks, " "), "/do/0/both/fork/branches/1/far") {
				return fmt.Errorf("steps %q", tasks)
			}
			return nil
		})
	}
	large := `{"what":"` + strings.Repeat("x", 1000) + `"}`
	a, err := call{function: "wf", body: strings.NewReader(large)}.do(t.Context())
	if want := fmt.Sprintf(`{"much":%d}`, 2*len(large)); err != nil || strings.TrimSpace(string(a.body)) != want {
		t.Errorf("the other way: %d %s, %v", a.status, a.body, err)
	}
	nodes, err := bed.Client().Cache(t.Context(), admin.CacheQuery{Verb: "workflows", Reference: "default/wf"})
	runs := map[string]int64{}
	for _, n := range nodes {
		for _, e := range n.Entries {
			runs[n.Node] += e.GetWorkflow().GetRuns()
		}
	}
	if err != nil || runs[testbed.Edge]+runs[testbed.Cloud] != 3 || runs[testbed.Cloud] != 1 {
		t.Errorf("nodes have run it %v times, %v", runs, err)
	}
	if f := function(t, "wf"); len(f.Instances) != 0 || f.Image != "" || f.Workflow != "1.0.0" {
		t.Errorf("in the status it is %+v", f)
	}
}

// A workflow calls a server that is no function's, if the operator lists it: here the S3 server, which wants to know who asks. What the
// operator does not list is not asked.
func TestAWorkflowCallsAServerOfTheOperators(t *testing.T) {
	deployWorkflow(t, "wf-outside", `  - asked:
      try:
      - ask: { call: http, with: { method: get, endpoint: '`+bed.S3.Endpoint+`/' } }
      catch:
        as: error
        do:
        - say: { set: { status: '${ $error.status }', where: '${ $error.instance }' } }
`)
	deployWorkflow(t, "wf-nobody", "  - ask: { call: http, with: { method: get, endpoint: 'http://169.254.169.254/latest' } }\n")
	for name, want := range map[string]string{"wf-outside": `{"status":403,`, "wf-nobody": "no destination of namespace default"} {
		a, err := call{function: name}.do(t.Context())
		if err != nil || !strings.Contains(string(a.body), want) {
			t.Errorf("%s: %d %s, %v", name, a.status, a.body, err)
		}
	}
}

// A workflow that is applied again is another one at once, and one that is deleted is none.
func TestAWorkflowChanges(t *testing.T) {
	deployWorkflow(t, "wf-changes", "  - one: { set: { is: first } }\n")
	asks := func(want string) {
		t.Helper()
		eventually(t, "it answers "+want, func() error {
			a, err := call{function: "wf-changes"}.do(t.Context())
			if got := strings.TrimSpace(string(a.body)); got != want {
				return errors.Join(err, fmt.Errorf("%d %s", a.status, got))
			}
			return nil
		})
	}
	asks(`{"is":"first"}`)
	deployWorkflow(t, "wf-changes", "  - one: { set: { is: second } }\n")
	asks(`{"is":"second"}`)
	deploy(t, testbed.Function{Name: "wf-changes"})
	eventually(t, "it is a function like others", func() error {
		a, err := call{function: "wf-changes"}.do(t.Context())
		if a.report.Method != http.MethodPost {
			return errors.Join(err, fmt.Errorf("%d %s", a.status, a.body))
		}
		return nil
	})
}

// Errors of a run are for the caller, and say where in the document; those of a document are for its author.
func TestWorkflowsThatFail(t *testing.T) {
	deploy(t, testbed.Function{Name: "wf-exits"})
	deployWorkflow(t, "wf-fails", `  - try:
      try:
      - get: { call: http, with: { method: get, endpoint: 'http://wf-exits.default/exit?code=3' } }
      catch:
        errors: { with: { status: 502 } }
        retry: { delay: { milliseconds: 100 }, limit: { attempt: { count: 1 } } }
        do:
        - say: { raise: { error: { type: 'https://shop.example/broken', status: 503, title: '${ "it was " + $error.instance }' } } }
`)
	a, err := call{function: "wf-fails"}.do(t.Context())
	var fault map[string]any
	if err != nil || json.Unmarshal(a.body, &fault) != nil || a.status != http.StatusServiceUnavailable ||
		fault["type"] != "https://shop.example/broken" || fault["title"] != "it was /do/0/try/try/0/get" {
		t.Errorf("%d %s, %v", a.status, a.body, err)
	}
	a, err = call{function: "wf-fails", body: strings.NewReader("<a/>")}.do(t.Context())
	if err != nil || a.problem.Title != "WorkflowInputMalformed" || a.status != http.StatusBadRequest {
		t.Errorf("%d %s, %v", a.status, a.body, err)
	}
	for tasks, want := range map[string]string{
		"  - one: { emit: { event: {} } }\n":                                        `line 7: function default/wf-wrong: spec.do[0].one.emit: "emit" is not supported`,
		"  - one: { set: { n: 1 }, then: two }\n":                                   `spec.do[0].one.then: no task of the list is named "two"`,
		"  - one:\n      if: 'reduce .[] as $x (0; . + $x)'\n      set: { n: 1 }\n": "has a loop",
	} {
		if _, err := bed.Client().Apply(t.Context(), strings.NewReader(workflowOf("wf-wrong", tasks))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is applied: %v", tasks, err)
		}
	}
}

// A run whose client has left calls nothing more.
func TestAWorkflowWhoseClientLeaves(t *testing.T) {
	deploy(t, testbed.Function{Name: "wf-sleeps"})
	deployWorkflow(t, "wf-left", `  - first: { call: http, with: { method: get, endpoint: 'http://wf-sleeps.default/sleep?ms=60000' } }
  - second: { call: http, with: { method: get, endpoint: 'http://wf-sleeps.default/' } }
`)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if a, err := (call{function: "wf-left"}).do(ctx); err == nil {
		t.Errorf("it is answered: %d %s", a.status, a.body)
	}
	nothingHalfMade(t)
}

// The functions that follow start while the first one does: a workflow of cold functions waits for one start, and not for all.
func TestAWorkflowOfColdFunctions(t *testing.T) {
	tasks := ""
	for _, name := range []string{"wf-cold-one", "wf-cold-two", "wf-cold-three"} {
		deploy(t, testbed.Function{Name: name, Env: map[string]string{"WITNESS_SLOW": "1s"}})
		tasks += fmt.Sprintf("  - %s: { call: http, with: { method: get, endpoint: 'http://%s.default/' } }\n", name, name)
	}
	deployWorkflow(t, "wf-cold", tasks)
	a, err := call{function: "wf-cold"}.do(t.Context())
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s, %v", a.status, a.body, err)
	}
	id := a.header.Get(filterapi.HeaderRequest)
	eventually(t, "the starts are in trace "+id, func() error {
		starts, first := map[string]time.Time{}, time.Time{}
		for _, s := range spansOf(t, id).Spans {
			switch {
			case s.Name == tracing.SandboxCreate:
				starts[fmt.Sprint(s.Attributes[string(tracing.Function)])] = s.Start
			case s.Name == tracing.Step && (first.IsZero() || s.End.Before(first)):
				first = s.End
			}
		}
		if len(starts) != 3 || first.IsZero() {
			return fmt.Errorf("starts %v, the first step's end %v", starts, first)
		}
		for name, at := range starts {
			if at.After(first) {
				return fmt.Errorf("%s starts at %v, and the first step ends at %v", name, at, first)
			}
		}
		return nil
	})
}
