package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if failed := json.NewDecoder(strings.NewReader(stdout)).Decode(&got); err == nil || failed != nil || !cmp.Equal(got, b.job) {
		t.Errorf("printed %s, %v", stdout, err)
	}
}

// What a job has to say itself is in its log, and why it never ran is in the runtime's words.
func TestRunOfAJobSaysWhereToLook(t *testing.T) {
	b := backend{
		job: admin.JobOutcome{
			Job: "default/digest", Node: "edge", Reason: admin.JobFailed, Message: "it ended with code 7",
			Trace: "3f1c",
		},
	}
	dir := serve(t, &b)
	expectError(
		t,
		"job default/digest failed on edge: JobFailed: it ended with code 7; headstart trace 3f1c, headstart logs default/digest",
		"run", "-f", "-", "--run-dir", dir,
	)
	b.job = admin.JobOutcome{
		Job: "default/digest", Node: "edge", Reason: "SandboxFailed", Message: "no sandbox", Trace: "3f1c",
		Log: []string{"exec: \x1b: no such file"},
	}
	expectError(
		t,
		"job default/digest failed on edge: SandboxFailed: no sandbox; headstart trace 3f1c\n  │ exec: \ufffd: no such file",
		"run", "-f", "-", "--run-dir", dir,
	)
}

func TestRunThatIsInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	cmd := command("headstart")
	cmd.SetArgs([]string{"run", "-f", "-", "--run-dir", serve(t, &backend{})})
	cmd.SetIn(strings.NewReader(jobManifest))
	if err := cmd.ExecuteContext(ctx); err == nil || err.Error() != "interrupted; the job is ended, with 30 s of grace" {
		t.Errorf("it says: %v", err)
	}
}

// A manifest that would be left out in silence is none that was deployed.
func TestManifestsAreNamedByOneFlag(t *testing.T) {
	for _, name := range []string{"apply", "run"} {
		expectError(
			t, `unexpected "service.yaml"; -f names the manifest: headstart `+name+" -f service.yaml", name,
			"service.yaml",
		)
		expectError(
			t,
			`invalid argument "b.yaml" for "-f, --filename" flag: there is one already; put all into one file, with a line --- between them`,
			name, "-f", "a.yaml", "-f", "b.yaml",
		)
		expectError(t, `required flag(s) "filename" not set`, name)
	}
}
