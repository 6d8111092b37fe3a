package local

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func digestJob() platform.Job {
	p := policy.Default()
	p.Input, p.ReadBySocket = "s3://videos/a", true
	p.Connections = policy.Connections{Destinations: []string{"orders"}, By: "socket"}
	return platform.Job{Name: "default/digest", Image: "digest:1", Args: []string{"/headstart/input/job"}, Policy: p}
}

type ran struct {
	Outcome
	err error
}

// run runs a job in the background, until it has been placed.
func (w *world) run(ctx context.Context, j platform.Job) (start *nodeapi.StartInstance, over <-chan ran) {
	ended := make(chan ran, 1)
	w.background.Go(func() {
		o, err := w.p.RunJob(ctx, j)
		ended <- ran{o, err}
	})
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.sent {
		start = m.GetStart()
	}
	return start, ended
}

func (w *world) noJobs() {
	w.t.Helper()
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	if len(w.p.jobs) != 0 {
		w.t.Errorf("jobs are left: %v", w.p.jobs)
	}
}

func TestAJobRunsOnce(t *testing.T) {
	for name, c := range map[string]struct {
		says *nodeapi.InstanceStatus
		want Outcome
	}{
		"succeeds": {&nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_STOPPED, Reason: "JobSucceeded"}, Outcome{Reason: "JobSucceeded"}},
		"fails":    {&nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_STOPPED, Reason: "JobFailed", ExitCode: 3}, Outcome{Reason: "JobFailed", ExitCode: 3}},
		"never starts": {&nodeapi.InstanceStatus{Phase: nodeapi.Phase_PHASE_FAILED, Reason: "InputNotFound", Message: "no", Field: "headstart.dev/input"},
			Outcome{Reason: "InputNotFound", Message: "no", Field: "headstart.dev/input"}},
		"has no such program": {&nodeapi.InstanceStatus{
			Phase: nodeapi.Phase_PHASE_FAILED, Reason: "SandboxFailed", Log: []string{"exec: no such file"},
		},
			Outcome{Reason: "SandboxFailed", Log: []string{"exec: no such file"}}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.Join("edge")
				start, over := w.run(t.Context(), digestJob())
				j := start.GetJob()
				if c := start.GetConnections(); c.GetId() != start.GetId() || c.GetName() != "default/digest" || c.GetDestinations()[0] != "orders" {
					t.Errorf("the node is told the connections %v", c)
				}
				if j.GetId() != start.GetId() || j.GetInput() != "s3://videos/a" || !j.GetBySocket() || j.GetStore() != "default" || j.GetReadyTimeout().AsDuration() != time.Minute {
					t.Errorf("the node is told %v", start)
				}
				c.says.Id = start.GetId()
				w.p.InstanceChanged("cloud", c.says) // which is none of its business
				w.p.InstanceChanged("edge", &nodeapi.InstanceStatus{Id: start.GetId(), Phase: nodeapi.Phase_PHASE_READY})
				w.p.InstanceChanged("edge", c.says)
				got := <-over
				c.want.Node, c.want.Instance = "edge", start.GetId()
				if got.err != nil || !reflect.DeepEqual(got.Outcome, c.want) {
					t.Errorf("got %+v", got)
				}
				w.noJobs()
				if st := w.p.State(); len(st.Instances)+len(st.Functions) != 0 {
					t.Errorf("the state has %+v", st)
				}
			})
		})
	}
}

// Who orders a job and leaves ends it; so does its deadline.
func TestAJobIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		ctx, cancel := context.WithCancel(t.Context())
		start, over := w.run(ctx, digestJob())
		cancel()
		if got := <-over; !errors.Is(got.err, context.Canceled) || w.stops()[0] != start.GetId() {
			t.Errorf("got %+v, stopped %v", got, w.stops())
		}
		j := digestJob()
		j.Timeout = time.Hour
		_, over = w.run(t.Context(), j)
		began := time.Now()
		if got := <-over; got.err != nil || got.Reason != "JobTimeout" || time.Since(began) != time.Hour || len(w.stops()) != 2 {
			t.Errorf("after %s: %+v", time.Since(began), got)
		}
		w.noJobs()
	})
}

// A node that is away for a moment may go on with its jobs; one that has lost them, or stays
// away, has the job fail.
func TestAJobOfANodeThatIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		start, over := w.run(t.Context(), digestJob())
		w.Leave("edge")
		w.Join("edge")
		synctest.Wait()
		select {
		case got := <-over:
			t.Fatalf("it still runs, but %+v", got)
		default:
		}
		w.Leave("edge")
		w.mu.Lock()
		delete(w.running["edge"], start.GetId())
		w.mu.Unlock()
		w.Join("edge")
		if got := <-over; got.err != nil || got.Reason != "JobLost" {
			t.Errorf("got %+v", got)
		}
		_, over = w.run(t.Context(), digestJob())
		w.Leave("edge")
		if got := <-over; got.err != nil || got.Reason != "JobLost" {
			t.Errorf("got %+v", got)
		}
		w.noJobs()
	})
}

// What a control plane of before was to wait for, nobody waits for.
// A job that ends while its node has no stream has its result when the node is back.
func TestAJobThatEndedWhileItsNodeWasAway(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		start, over := w.run(t.Context(), digestJob())
		w.Leave("edge")
		w.p.NodeJoined("edge", []*nodeapi.InstanceStatus{{
			Id: start.GetId(), Phase: nodeapi.Phase_PHASE_STOPPED, Reason: "JobFailed", ExitCode: 3,
		}})
		if got := <-over; got.err != nil || got.Reason != "JobFailed" || got.ExitCode != 3 {
			t.Errorf("got %+v", got)
		}
		w.noJobs()
	})
}

func TestAJobOfAnEarlierControlPlaneIsStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.Join("edge")
		ctx, cancel := context.WithCancel(t.Context())
		w.stuck = true
		start, _ := w.run(ctx, digestJob())
		cancel()
		w.restart()
		w.stuck = false
		w.Join("edge")
		if got := w.stops(); len(got) == 0 || got[len(got)-1] != start.GetId() {
			t.Errorf("stopped: %v", got)
		}
	})
}

func TestJobsHaveALimit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if _, err := w.p.RunJob(t.Context(), digestJob()); refusalText(err) != "503 NoNode []: no node is connected to the control plane" {
			t.Error(err)
		}
		w.Join("edge")
		ctx, cancel := context.WithCancel(t.Context())
		for range jobsMost {
			w.run(ctx, digestJob())
		}
		if _, err := w.p.RunJob(t.Context(), digestJob()); refusalText(err) != "503 PlatformFull []: 100 jobs run already; run this one when one of them is over" {
			t.Error(err)
		}
		cancel()
		synctest.Wait()
		w.noJobs()
	})
}
