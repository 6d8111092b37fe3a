package sandboxes_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/sandboxestest"
)

// shimmed is a node whose shims ask for jobs' inputs.
type shimmed struct {
	*sandboxestest.Memory
	stage func(ctx context.Context, id string) error
	// specs are of all sandboxes, by id.
	specs map[string]sandboxes.Spec
	// removing is closed when the first one is being removed, which takes until removed is, or as long as it may; nil: no
	// time.
	removing, removed chan struct{}
}

type jobSandbox struct {
	sandboxes.Container
	of *shimmed
}

func (s *shimmed) Create(ctx context.Context, spec sandboxes.Spec) (sandboxes.Container, error) {
	s.specs[spec.ID] = spec
	sb, err := s.Memory.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	return jobSandbox{sb, s}, nil
}

func (sb jobSandbox) Start(ctx context.Context) error {
	a := sb.of.specs[sb.ID()].Annotations
	if a[filterapi.AnnotationInput] != "" && a[filterapi.AnnotationReadBy] != filterapi.ReadBySocket {
		if err := sb.of.stage(ctx, sb.ID()); err != nil {
			return err
		}
	}
	return sb.Container.Start(ctx)
}

func (sb jobSandbox) Remove(ctx context.Context, grace time.Duration) error {
	if removing := sb.of.removing; removing != nil {
		sb.of.removing = nil
		close(removing)
		select {
		case <-sb.of.removed:
		case <-ctx.Done():
		}
	}
	return sb.Container.Remove(ctx, grace)
}

// jobRig is a rig whose set runs jobs.
type jobRig struct {
	*rig
	jobs *jobs
	node *shimmed
	told chan *nodeapi.InstanceStatus
	// unheard has nobody hear any more what is told.
	unheard func()
}

func newJobRig(t *testing.T, fails error) *jobRig {
	r := &jobRig{rig: newRig(t), jobs: &jobs{fails: fails}, told: make(chan *nodeapi.InstanceStatus, 16)}
	r.set.Close()
	r.node = &shimmed{Memory: r.rig.node, specs: map[string]sandboxes.Spec{},
		stage: func(ctx context.Context, id string) error {
			_, err := r.set.Stage(ctx, &nodeapi.StageRequest{Sandbox: id})
			return err
		}}
	r.configure.Jobs = r.jobs
	r.openJobs(t)
	return r
}

func (r *jobRig) openJobs(t *testing.T) {
	t.Helper()
	ctx, unheard := context.WithCancel(t.Context())
	t.Cleanup(unheard)
	set, err := sandboxes.OpenLocal(ctx, r.configure, r.node, func(s *nodeapi.InstanceStatus) { r.told <- s })
	if err != nil {
		t.Fatal(err)
	}
	r.set, r.unheard = set, unheard
}

func (r *jobRig) run(id string, change func(*nodeapi.Job), args ...string) {
	m := r.message(id, args...)
	m.Function.Port = 0
	m.Job = &nodeapi.Job{Id: id, Name: function, Input: "s3://videos/a", Store: "edge"}
	if change != nil {
		change(m.Job)
	}
	r.set.Start(m)
}

// over waits for the job's last word, and sees that nothing is left of it by then.
func (r *jobRig) over(t *testing.T) *nodeapi.InstanceStatus {
	t.Helper()
	for {
		select {
		case s := <-r.told:
			if s.GetPhase() != nodeapi.Phase_PHASE_STOPPED && s.GetPhase() != nodeapi.Phase_PHASE_FAILED {
				continue
			}
			r.wantNoRest(s.GetId())
			if len(r.jobs.all()) != 0 {
				t.Errorf("inputs are left of %v", r.jobs.all())
			}
			return s
		case <-t.Context().Done():
			t.Fatal("the job is not over")
		}
	}
}

// When a job's end is told, nothing is left of it.
func TestAJobRunsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fails  error
		change func(*nodeapi.Job)
		args   []string
		want   *nodeapi.InstanceStatus
	}{
		"succeeds": {args: []string{"exit", "0", "1s"},
			want: &nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_STOPPED, Reason: "JobSucceeded",
				Message: "the job's program ended with code 0"}},
		"succeeds at once": {args: []string{"exit", "0"},
			want: &nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_STOPPED, Reason: "JobSucceeded",
				Message: "the job's program ended with code 0"}},
		"fails": {args: []string{"exit", "3", "1s"}, want: &nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_STOPPED,
			Reason: "JobFailed", ExitCode: 3,
			Message: "the job's program ended with code 3", Field: "spec.template.spec.containers[0]"}},
		"has no input": {fails: problem.New(
			http.StatusNotFound, "InputNotFound", "headstart.dev/input", "no such object",
		),
			args: []string{"exit", "0"},
			want: &nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_FAILED, Reason: "InputNotFound",
				Message: "no such object", Field: "headstart.dev/input"}},
		"reads by its socket": {fails: problem.New(http.StatusNotFound, "InputNotFound", "", ""),
			args: []string{"exit", "0"}, change: func(j *nodeapi.Job) { j.BySocket = true },
			want: &nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_STOPPED, Reason: "JobSucceeded",
				Message: "the job's program ended with code 0"}},
		"is not a program": {args: []string{"what"}, want: &nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_FAILED,
			Reason:  "SandboxFailed",
			Message: "the node could not start the function's sandbox; the node's log says why", Field: "spec.template.spec.containers[0]", Log: []string{`["what"] is not a program`}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newJobRig(t, c.fails)
			r.run("digest-1", c.change, c.args...)
			c.want.Id, c.want.Function = "digest-1", function
			if diff := cmp.Diff(c.want, r.over(t), protocmp.Transform()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A registration lists a job until its end is told: a control plane takes one that is not there for lost.
func TestAJobCountsUntilItsEndIsTold(t *testing.T) {
	for name, args := range map[string][]string{"succeeds": {"exit", "0"}, "is not a program": {"what"}} {
		t.Run(name, func(t *testing.T) {
			r := newJobRig(t, nil)
			r.set.Close()
			telling, heard, told := make(chan struct{}), make(chan struct{}), make(chan struct{})
			set, err := sandboxes.OpenLocal(t.Context(), r.configure, r.node, func(s *nodeapi.InstanceStatus) {
				if s.GetPhase() == nodeapi.Phase_PHASE_STOPPED || s.GetPhase() == nodeapi.Phase_PHASE_FAILED {
					close(telling)
					<-heard
					close(told)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			r.set = set
			r.run("digest-1", nil, args...)
			<-telling
			r.wantNoRest("digest-1")
			if all := r.set.Statuses(); len(all) != 1 || all[0].GetId() != "digest-1" {
				t.Errorf("while its end is told, the node has %v", all)
			}
			close(heard)
			<-told
			r.set.Close()
			r.wantStatuses()
		})
	}
}

// A job goes on while the daemon is started again, and keeps its input.
func TestAJobOutlivesTheDaemon(t *testing.T) {
	r := newJobRig(t, nil)
	r.run("digest-1", nil, r.serving()...)
	for s := range r.told {
		if s.GetPhase() == nodeapi.Phase_PHASE_READY {
			break
		}
	}
	d, err := r.describe("digest-1")
	if err != nil || d.GetEnv()["HEADSTART_INPUT"] != "/headstart/input/job" {
		t.Errorf("described as %v", d)
	}
	r.set.Close()
	r.openJobs(t)
	if b, err := os.ReadFile(filepath.Join(r.path, "digest-1", "input", "job")); err != nil || string(b) != "frames" {
		t.Errorf("its input is %q, %v", b, err)
	}
	r.jobs.known = nil
	r.rig.node.Exit("digest-1", 0)
	if s := r.over(t); s.GetReason() != "JobSucceeded" {
		t.Errorf("it ended as %v", s)
	}
}

// How a job ended is told by the next daemon if nobody hears its own.
func TestAJobsEndOutlivesTheDaemon(t *testing.T) {
	for name, end := range map[string]func(r *jobRig){
		"it ends while no daemon is there": func(r *jobRig) {
			r.set.Close()
			r.rig.node.Exit("digest-1", 3)
		},
		"the daemon ends while it is removed": func(r *jobRig) {
			removing := r.remove()
			r.rig.node.Exit("digest-1", 3)
			<-removing
			r.set.Close()
		},
		"it is removed while the daemon ends": func(r *jobRig) {
			removing := r.remove()
			r.rig.node.Exit("digest-1", 3)
			<-removing
			r.unheard()
			close(r.node.removed)
			r.set.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newJobRig(t, nil)
			r.run("digest-1", nil, r.serving()...)
			for s := range r.told {
				if s.GetPhase() == nodeapi.Phase_PHASE_READY {
					break
				}
			}
			end(r)
			for len(r.told) > 0 {
				<-r.told
			}
			r.jobs.known = nil // with its daemon
			r.openJobs(t)
			if s := r.over(t); s.GetReason() != "JobFailed" || s.GetExitCode() != 3 {
				t.Errorf("it ended as %v", s)
			}
			r.set.Close()
			r.openJobs(t)
			if r.wantStatuses(); len(r.told) > 0 {
				t.Errorf("told again: %v", <-r.told)
			}
		})
	}
}

// remove has the next removal of a container take time, and returns what is closed when it begins.
func (r *jobRig) remove() chan struct{} {
	removing := make(chan struct{})
	r.node.removing, r.node.removed = removing, make(chan struct{})
	return removing
}

// One that is stopped has no reason of its own.
func TestAJobIsStopped(t *testing.T) {
	r := newJobRig(t, nil)
	r.run("digest-1", nil, r.serving()...)
	for s := range r.told {
		if s.GetPhase() == nodeapi.Phase_PHASE_READY {
			break
		}
	}
	r.set.Stop("digest-1", 0)
	if s := r.over(t); s.GetReason() != "" || s.GetPhase() != nodeapi.Phase_PHASE_STOPPED {
		t.Errorf("it ended as %v", s)
	}
}

func TestStageOfOthers(t *testing.T) {
	r := newJobRig(t, nil)
	if _, err := r.set.Stage(
		t.Context(), &nodeapi.StageRequest{Sandbox: "video-1"},
	); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
}
