package instance

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Jobs bring the inputs of jobs.
type Jobs interface {
	// Begin has a job's input fetched.
	Begin(ctx context.Context, j *nodeapi.Job, dir *staging.Dir)
	// Stage returns when the input is in dir, or the *problem.Problem for which it is not.
	Stage(ctx context.Context, id string, dir *staging.Dir) error
	// Traceparent is the job's trace, empty if it is not known.
	Traceparent(id string) string
	// End lets go of it.
	End(id string)
}

// jobGrace is how much longer than its ready timeout a job's start may take: an input that is
// late says so itself by then.
const jobGrace = 2 * time.Second

// Reasons of a job's end. A program that was stopped has none.
const (
	reasonSucceeded = "JobSucceeded"
	reasonJobFailed = "JobFailed"
)

// beginJob has a job's input fetched from now on, and returns what the shim is to know of it.
func (s *Set) beginJob(ctx context.Context, in *instance, j *nodeapi.Job) map[string]string {
	if j == nil {
		return nil
	}
	s.jobs.Begin(ctx, j, in.inputs)
	if j.GetInput() == "" {
		return nil
	}
	annotations := map[string]string{filterapi.AnnotationInput: j.GetInput()}
	if j.GetBySocket() {
		annotations[filterapi.AnnotationReadBy] = filterapi.ReadBySocket
	}
	return annotations
}

// startJob starts the program, once its input is there.
func (s *Set) startJob(ctx context.Context, in *instance, sb Sandbox) (err error) {
	ctx, span := startSpan(ctx, tracing.RuntimeStart, in)
	defer func() { endSpan(span, err) }()
	in.address = netip.AddrPortFrom(sb.Address(), 0)
	err = sb.Start(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && in.unstaged != nil {
		return in.unstaged // what the shim was told, in its own words
	}
	return err
}

// Stage answers a shim: it returns when the job's sandbox has its input. known is false for a
// sandbox that is none of the set's jobs.
func (s *Set) Stage(ctx context.Context, id string) (known bool, err error) {
	s.mu.Lock()
	in := s.instances[id]
	s.mu.Unlock()
	if in == nil || !in.job {
		return false, nil
	}
	err = s.jobs.Stage(ctx, id, in.inputs)
	s.mu.Lock()
	defer s.mu.Unlock()
	in.unstaged = err
	return true, err
}

// finish ends a job whose program ended by itself. When that is told nothing is left.
func (s *Set) finish(in *instance, sb Sandbox, status *nodeapi.InstanceStatus) {
	status.ExitCode = int32(sb.ExitCode())
	status.Reason, status.Message = reasonSucceeded, "the job's program ended with code 0"
	if status.ExitCode != 0 {
		status.Reason, status.Field = reasonJobFailed, fieldContainer
		status.Message = fmt.Sprintf("the job's program ended with code %d", status.ExitCode)
	}
	s.end(in, sb, 0, problem.InstanceGone())
	s.report(status)
}
