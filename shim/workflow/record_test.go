package workflow_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// What comes of runs is kept: what ran ahead, how much sooner, what was guessed wrong, and what came to nothing.
func TestRunsAreRecorded(t *testing.T) {
	const slower = time.Millisecond // than the one before: they answer in their order
	synctest.Test(t, func(t *testing.T) {
		times := 0
		later := func(d time.Duration, answer func(string) string) func(string) string {
			return func(body string) string { time.Sleep(d); return answer(body) }
		}
		n := newAhead(t, map[string]func(string) string{"a": adds("a"), "c": later(2*slower, adds("c")),
			"b": later(slower, func(body string) string { times++; return fmt.Sprintf("[%s,%d]", body, times) })})
		f := of(task("a"), task("b"), task("c"))
		n.run(f, "1")
		n.run(f, "1") // b answers something else: c works again
		want := []*nodeapi.StepRecord{
			{Task: "/do/a", Function: "shop/a", Calls: 2, Right: 1, Saved: durationpb.New(0)},
			{Task: "/do/b", Function: "shop/b", Calls: 2, Ahead: 1, Wrong: 1, Saved: durationpb.New(pace)},
			{Task: "/do/c", Function: "shop/c", Calls: 2, Squashed: map[string]int64{"wrong": 1}, Saved: durationpb.New(0)},
		}
		all := n.Records("shop", "")
		if len(all) != 1 || all[0].GetName() != f.GetName() || all[0].GetRuns() != 2 || all[0].GetFailed() != 0 {
			t.Fatalf("%v", all)
		}
		if diff := cmp.Diff(want, all[0].GetSteps(), protocmp.Transform()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		runs := all[0].GetRecent()
		if len(runs) != 2 || runs[0].GetTook().AsDuration() != 2*pace+3*slower || runs[1].GetTook().AsDuration() != 3*pace+3*slower {
			t.Fatalf("%v", runs)
		}
		path := []*nodeapi.RunStep{{Task: "/do/a"}, {Task: "/do/b", Ahead: true}, {Task: "/do/c"}}
		if diff := cmp.Diff(path, runs[0].GetPath(), protocmp.Transform()); diff != "" || runs[0].GetSaved().AsDuration() != pace || runs[0].GetResult() != "ok" {
			t.Errorf("%v, -want +got\n%s", runs[0], diff)
		}
		for range 20 {
			n.run(f, "1")
		}
		if all := n.Records("", f.GetName()); len(all) != 1 || all[0].GetRuns() != 22 || len(all[0].GetRecent()) != 8 {
			t.Errorf("after 22 runs: %v", all)
		}
		if all := n.Records("bank", ""); len(all) != 0 {
			t.Errorf("of another namespace: %v", all)
		}
	})
}
