package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// What nodes say of a workflow is shown together.
func TestWorkflowsAreShown(t *testing.T) {
	at := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	said := func(runs int64, began time.Time, result string) []*nodeapi.CacheEntry {
		return []*nodeapi.CacheEntry{{Workflow: &nodeapi.WorkflowRecord{Name: "shop/checkout", Runs: runs, Failed: 1,
			Steps: []*nodeapi.StepRecord{{Task: "/do/0/stock", Function: "shop/stock", Calls: runs, Right: 3, Wrong: 1},
				{Task: "/do/1/charge", Function: "shop/charge", Calls: runs, Ahead: runs - 1, Squashed: map[string]int64{"wrong": 1, "idle": 2},
					Saved: durationpb.New(250 * time.Millisecond)}},
			Recent: []*nodeapi.RunRecord{{Id: "cafe", Began: timestamppb.New(began), Took: durationpb.New(12 * time.Millisecond), Result: result,
				Saved: durationpb.New(8 * time.Millisecond), Path: []*nodeapi.RunStep{{Task: "/do/0/stock"}, {Task: "/do/1/charge", Ahead: true}}}}}}}
	}
	all := workflowsOf([]admin.CacheNode{{Node: "edge", Entries: said(5, at, "ok")}, {Node: "cloud", Entries: said(3, at.Add(time.Second), "")}})
	var out strings.Builder
	for _, err := range []error{printWorkflows(&out, all), printSteps(&out, all), printRuns(&out, all), printWorkflows(&out, nil), printRuns(&out, nil)} {
		if err != nil {
			t.Error(err)
		}
	}
	want := `WORKFLOW        RUNS   FAILED   AHEAD     RIGHT    SQUASHED          SAVED
shop/checkout   8      2        6 of 16   6 of 8   4 idle, 2 wrong   500ms
TASK           FUNCTION      AHEAD    RIGHT    SQUASHED          SAVED
/do/0/stock    shop/stock    0 of 8   6 of 8   -                 -
/do/1/charge   shop/charge   6 of 8   -        4 idle, 2 wrong   500ms
BEGAN                  REQUEST   NODE    TOOK   SAVED   RESULT                PATH
2026-11-27T09:00:01Z   cafe      cloud   12ms   8ms     the client has left   stock charge*
2026-11-27T09:00:00Z   cafe      edge    12ms   8ms     ok                    stock charge*
No node has run a workflow.
` + noRuns + "\n"
	if out.String() != want {
		t.Errorf("printed\n%s", out.String())
	}
}
