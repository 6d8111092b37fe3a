package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
)

const jobManifest = "apiVersion: batch/v1\nkind: Job\n"

func TestRun(t *testing.T) {
	b := backend{job: admin.JobOutcome{Job: "default/digest", Node: "edge", Reason: admin.Succeeded, Trace: "3f1c"}}
	stdout, _, err := headstart(t, jobManifest, "run", "-f", "-", "--run-dir", serve(t, &b))
	if err != nil || stdout != "default/digest succeeded on edge; headstart trace 3f1c\n" || b.applied != jobManifest {
		t.Errorf("printed %q, %v, of %q", stdout, err, b.applied)
	}
}

// A job that fails is an error, by whatever way it is told.
func TestRunOfAJobThatFails(t *testing.T) {
	b := backend{job: admin.JobOutcome{Job: "default/digest", Node: "edge", Reason: "InputNotFound", Message: "no such object", Field: "headstart.dev/input", Trace: "3f1c"}}
	const want = "job default/digest failed on edge: InputNotFound: no such object (headstart.dev/input); headstart trace 3f1c"
	stdout, _, err := headstart(t, jobManifest, "run", "-f", "-", "--run-dir", serve(t, &b))
	if err == nil || err.Error() != want || stdout != "" {
		t.Errorf("printed %q, %v", stdout, err)
	}
	stdout, _, err = headstart(t, jobManifest, "run", "-f", "-", "-o", "json", "--run-dir", serve(t, &b))
	var got admin.JobOutcome
	if failed := json.NewDecoder(strings.NewReader(stdout)).Decode(&got); err == nil || failed != nil || got != b.job {
		t.Errorf("printed %s, %v", stdout, err)
	}
}
