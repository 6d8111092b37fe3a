package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/readiness"
)

// fieldContainer is the field of the manifest that an instance's failure may point to.
const fieldContainer = "spec.template.spec.containers[0]"

// Reasons of an instance's end or failure; all others are the control plane's to choose. A job's
// program that was stopped has none.
const (
	reasonExited        = "FunctionExited"
	reasonSandboxFailed = "SandboxFailed"
	reasonReadyTimeout  = "ReadyTimeout"
	reasonSucceeded     = "JobSucceeded"
	reasonJobFailed     = "JobFailed"
)

// stopRequest is the cause of a life that somebody ended.
type stopRequest struct{ grace time.Duration }

func (stopRequest) Error() string { return "the instance is to end" }

// stopRequested tells whether, and with what grace, the life of ctx's instance was
// ended by Stop.
func stopRequested(ctx context.Context) (grace time.Duration, stopped bool) {
	var r stopRequest
	stopped = errors.As(context.Cause(ctx), &r)
	return r.grace, stopped
}

func exitedEarly(e Exit) *problem.Problem {
	return problem.New(
		http.StatusBadGateway, reasonExited, fieldContainer,
		fmt.Sprintf("the function's program %v before it was ready", e),
	)
}

// explain turns the failure of a start within ctx into words for the function's owner;
// a fault that the operator has to fix goes to the log and to the instance's words, and callers
// do not see it.
func (l *Local) explain(ctx context.Context, in *run, err error, f *nodeapi.Function) *problem.Problem {
	var p *problem.Problem
	_, stopped := stopRequested(ctx)
	switch {
	case errors.As(err, &p):
		return p
	case stopped:
		return problem.New(http.StatusServiceUnavailable, problem.ReasonInstanceStopped, "",
			"the instance was stopped while it was starting")
	case l.ctx.Err() != nil:
		return problem.New(
			http.StatusServiceUnavailable, problem.ReasonDaemonStopping, "", "the node's daemon is being stopped",
		)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		why := ""
		var last *readiness.NotReadyError
		if errors.As(err, &last) {
			why = ": " + last.Because
		}
		return problem.New(http.StatusGatewayTimeout, reasonReadyTimeout, filterapi.AnnotationReadyTimeout,
			fmt.Sprintf("the function was not ready within %s%s; fix its start, or allow it more time",
				f.GetReadyTimeout().AsDuration(), why))
	}
	in.words = nodeapi.LastLines(err.Error())
	l.config.Log.Error("an instance could not be started", "function", f.GetName(), "error", err)
	return problem.New(http.StatusBadGateway, reasonSandboxFailed, fieldContainer,
		"the node could not start the function's sandbox; the node's log says why")
}
