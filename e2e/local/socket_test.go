//go:build integration

package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// handoff sends a request to a function of testbed.Handoff, whose answers are no reports.
func handoff(t *testing.T, c call) answer {
	t.Helper()
	a, err := c.do(t.Context())
	if err != nil && a.status != http.StatusOK {
		t.Fatal(err)
	}
	if a.header.Get("Content-Type") != "application/problem+json" {
		_ = json.Unmarshal(a.body, &a.problem) // one that the function passed on, if it is one
	}
	return a
}

// with are headers for an input, and more of them.
func with(key string, more ...string) map[string]string {
	h := forInput(key)
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// In a real sandbox a function reads its input by its socket, and hands it to others, which
// are started for it, on either node.
func TestFunctionsHandOnTheirInputs(t *testing.T) {
	deploy(t, testbed.Function{Name: "hand-first", Image: testbed.Handoff, Node: testbed.Edge, Annotations: withInput()})
	deploy(t, testbed.Function{Name: "hand-next", Image: testbed.Handoff, Annotations: withInput()})
	deploy(t, testbed.Function{Name: "hand-far", Image: testbed.Handoff, Node: testbed.Cloud, Annotations: withInput()})
	deploy(t, testbed.Function{Name: "hand-body", Image: testbed.Handoff, Node: testbed.Cloud, Annotations: withBody})
	digest := put(t, "hand/one", 3_000_000)
	object := "s3://" + testbed.Bucket + "/hand/one"
	for _, c := range []call{
		{path: "/read", header: forInput("hand/one")},
		{path: "/file", header: forInput("hand/one")},
		{path: "/stream?to=hand-next", header: forInput("hand/one")},
		{path: "/stream?to=hand-far", header: forInput("hand/one")},
		{path: "/reference?to=hand-next", header: map[string]string{"x-object": object}},
		{path: "/reference?to=hand-far", header: map[string]string{"x-object": object}},
	} {
		c.function = "hand-first"
		if a := handoff(t, c); a.status != http.StatusOK || string(a.body) != digest {
			t.Errorf("%s: %d %.300s", c.path, a.status, a.body)
		}
	}
	for path, want := range map[string]string{"/reference?to=nobody": "FunctionUnknown", "/reference?to=hand-next": "StoreNotAllowed", "/reference?to=../x": "CallMalformed"} {
		a := handoff(t, call{function: "hand-first", path: path, header: map[string]string{"x-object": "s3://private/a"}})
		if a.problem.Title != want || a.status != a.problem.Status {
			t.Errorf("%s: %d %.300s", path, a.status, a.body)
		}
	}
	// Whose input is the body gets it while it starts: through the buffers of both nodes.
	a := handoff(t, call{function: "hand-first", path: "/stream?to=hand-body", header: forInput("hand/one")})
	if a.status != http.StatusOK || string(a.body) != digest {
		t.Errorf("as a body: %d %.300s", a.status, a.body)
	}
	eventually(t, "both nodes received it", func() error {
		received := 0
		for _, s := range spansOf(t, a.header.Get(filterapi.HeaderRequest)).Spans {
			if s.Name == tracing.Receive {
				received++
			}
		}
		if received != 2 {
			return fmt.Errorf("%d spans", received)
		}
		return nil
	})
	nothingHalfMade(t)
}

// A request and those that its function makes are one trace.
func TestACallIsInTheCallersTrace(t *testing.T) {
	deploy(t, testbed.Function{Name: "hand-traced", Image: testbed.Handoff, Annotations: withInput()})
	deploy(t, testbed.Function{Name: "hand-below", Image: testbed.Handoff, Annotations: withInput()})
	put(t, "hand/traced", 100_000)
	a := handoff(t, call{function: "hand-traced", path: "/stream?to=hand-below", header: forInput("hand/traced")})
	id := a.header.Get(filterapi.HeaderRequest)
	eventually(t, "the call is in trace "+id, func() error {
		tr := spansOf(t, id)
		byID := map[string]trace.Span{}
		for _, s := range tr.Spans {
			byID[s.ID] = s
		}
		for _, s := range tr.Spans {
			above := byID[s.Parent]
			if s.Name == tracing.Activation && above.Name == tracing.Call && byID[above.Parent].Name == tracing.Activation {
				return nil
			}
		}
		return fmt.Errorf("spans %+v", tr.Spans)
	})
}

// The daemon's next process serves the sandboxes that run.
func TestSocketsOutliveTheDaemon(t *testing.T) {
	deploy(t, testbed.Function{Name: "hand-outlives", Image: testbed.Handoff, Annotations: withInput()})
	digest := put(t, "hand/outlives", 100_000)
	read := call{function: "hand-outlives", path: "/read", header: with("hand/outlives")}
	if a := handoff(t, read); string(a.body) != digest {
		t.Fatalf("%d %s", a.status, a.body)
	}
	before := function(t, "hand-outlives").Instances
	pid := bed.PID("headstart-node-" + testbed.Edge)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon is back", func() error {
		a, err := read.do(t.Context())
		if string(a.body) != digest {
			return errors.Join(err, fmt.Errorf("%d %.300s", a.status, a.body))
		}
		return nil
	})
	after := function(t, "hand-outlives").Instances
	if len(before) != 1 || len(after) != 1 || before[0].ID != after[0].ID || strings.Contains(before[0].ID, " ") {
		t.Errorf("instances %+v, then %+v", before, after)
	}
}
