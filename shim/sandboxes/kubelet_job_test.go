package sandboxes_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func newPodJobRig(t *testing.T) *podRig {
	t.Helper()
	r := newPodRig(t)
	r.jobs = &jobs{}
	r.configure.Jobs = r.jobs
	r.Close()
	r.open()
	return r
}

func (r *podRig) hasJobs(ids ...string) {
	m := &nodeapi.Instances{}
	for _, id := range ids {
		m.Jobs = append(m.Jobs, &nodeapi.Job{Id: id, Input: "s3://videos/a"})
	}
	r.Instances(m)
}

func (r *podRig) stage(sandbox string, p *nodeapi.Pod) error {
	_, err := r.Stage(r.t.Context(), &nodeapi.StageRequest{Sandbox: sandbox, Pod: p})
	return err
}

// A job's input is in its pod's directory for as long as that has containers, and the
// control plane names it.
func TestAJobsPod(t *testing.T) {
	r := newPodJobRig(t)
	all := r.jobs
	p := pod("fire-x", "a")
	r.hasJobs(one, "../../etc")
	r.hasJobs(one) // again: it is the one that is known
	if !slices.Equal(all.known, []string{one}) {
		t.Errorf("fetched for %v", all.known)
	}
	if err := r.stage("a", p); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("without a directory: %v", err)
	}
	d := r.described("a", p)
	if d.GetEnv()["HEADSTART_INPUT"] != "/headstart/input/job" || d.GetTraceparent() != jobTraceparent {
		t.Errorf("described as %v", d)
	}
	if err := r.stage("a", p); err != nil {
		t.Error(err)
	}
	file := filepath.Join(r.dir, one, "input", "job")
	r.gone("a", p)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("its next container has no input: %v", err)
	}
	r.hasJobs()
	if left, err := os.ReadDir(r.dir); err != nil || len(left) != 0 || len(all.known) != 0 {
		t.Errorf("left: %v, %v, %v", left, all.known, err)
	}
}

// The pod may go from the control plane's list before its last container does.
func TestAJobsLastContainer(t *testing.T) {
	r := newPodJobRig(t)
	r.hasJobs(one)
	r.described("a", pod("fire-x", "a"))
	r.hasJobs()
	r.gone("a", pod("fire-x", "a"))
	if left, err := os.ReadDir(r.dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A shim is told what the job's owner is to read.
func TestAJobsInputCannotBeHad(t *testing.T) {
	r := newPodJobRig(t)
	r.described("a", pod("fire-x", "a"))
	if err := r.stage("a", pod("fire-x", "a")); status.Convert(err).Message() != "JobUnknown: nobody knows it" {
		t.Error(err)
	}
	if err := r.stage("a", pod("..", "a")); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// What a killed daemon has staged is there for the job that runs on; inputs of requests are
// not.
func TestAJobsInputOutlivesTheDaemon(t *testing.T) {
	r := newPodJobRig(t)
	r.described("a", pod("fire-x", "a"))
	input := filepath.Join(r.dir, one, "input")
	for _, name := range []string{"job", "0123"} {
		if err := os.WriteFile(filepath.Join(input, name), nil, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	r.open()
	left, err := os.ReadDir(input)
	if err != nil || len(left) != 1 || left[0].Name() != "job" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A job's container may start before the control plane has told the node of the job: it is
// known by its own annotations, also to the next daemon.
func TestAJobIsAheadOfItsNews(t *testing.T) {
	r := newPodJobRig(t)
	r.described("a", pod("fire-x", "a"))
	if r.SaysJob(one) {
		t.Error("a pod is a job that does not say so")
	}
	d, err := r.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: "b", Pod: pod("fire-x", "b"), Job: true})
	if err != nil || d.GetEnv()["HEADSTART_INPUT"] != "/headstart/input/job" {
		t.Errorf("described as %v, %v", d, err)
	}
	r.Close()
	r.open()
	if !r.SaysJob(one) || r.SaysJob("default_other_u-2") || r.SaysJob("../"+one) {
		t.Error("what containers have said is lost, or of another pod")
	}
	r.gone("a", pod("fire-x", "a"))
	r.gone("b", pod("fire-x", "b"))
	if left := names(t, r.dir); len(left) != 0 || r.SaysJob(one) {
		t.Errorf("left: %v", left)
	}
}
