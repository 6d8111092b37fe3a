// Package workflow answers requests for workflows, on the node where they enter: it runs their programs, and calls their
// functions by the node's own ingress.
package workflow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow/predict"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/workflow")

// Config is what an owner is made of.
type Config struct {
	// Find returns the function that answers to a host, or a *problem.Problem.
	Find    func(ctx context.Context, host string) (*nodeapi.Function, error)
	Metrics *Metrics
}

const (
	// memoryOfNode bounds what the values of all runs take, in bytes: a part of what the chart gives the daemon.
	memoryOfNode = 32 << 20
	// aheadMost is how many calls ahead of a run's own are prepared.
	aheadMost = 16
	// leastMemory is what a run counts for at least, in bytes.
	leastMemory = 8 << 10
)

// Owner runs workflows. Its methods may be called at the same time. What runs have of the node is shared out fairly among
// namespaces.
type Owner struct {
	config Config
	memory *memory
	turns  *fair.Places // those that compute

	mu       sync.Mutex
	programs map[string]compiled // by the workflow's name
}

// compiled is a program, or why there is none.
type compiled struct {
	of        *nodeapi.Workflow
	program   *program.Program
	predictor *predict.Predictor
	err       error
}

// New returns an owner of no runs.
func New(c Config) *Owner {
	return &Owner{config: c, programs: map[string]compiled{}, memory: &memory{share: fair.NewShare(memoryOfNode)},
		turns: fair.NewPlaces(int64(max(2, runtime.GOMAXPROCS(0))))}
}

// Request is one that a workflow is to answer.
type Request struct {
	ID       string
	Workflow *nodeapi.Function
	Depth    int // of calls of functions by functions
	// Ingress takes the requests for functions.
	Ingress http.Handler
	// Prepare has a function have an instance, if it has none. It may return before there is one.
	Prepare func(ctx context.Context, function, caller string)
}

// Serve answers a request. Its error is why there is no run; a run that fails is an answer.
func (o *Owner) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, q Request) error {
	c, err := o.program(q.Workflow)
	if err != nil {
		return err
	}
	input, err := readInput(w, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Workflow.GetRequestTimeout().AsDuration())
	defer cancel()
	ctx = fair.For(ctx, q.Workflow.GetName())
	run := &run{owner: o, request: q, namespace: namespaceOf(q.Workflow.GetName()), prepared: map[string]bool{}}
	defer run.release()
	w.Header().Set(filterapi.HeaderRequest, q.ID)
	began := time.Now()
	output, fault, err := run.finish(ctx, c, input)
	o.config.Metrics.observe(q.Workflow.GetName(), began, fault, err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return problem.New(http.StatusGatewayTimeout, problem.ReasonFunctionTimeout, "spec.timeout",
			fmt.Sprintf("the workflow did not end within %s", q.Workflow.GetRequestTimeout().AsDuration()))
	case err != nil:
		return err
	case fault != nil:
		trace.SpanFromContext(ctx).SetStatus(codes.Error, fault.Type)
		return answer(w, fault.Status, filterapi.ProblemContentType, fault.Value())
	}
	return answer(w, http.StatusOK, "application/json", output)
}

func namespaceOf(name string) string {
	namespace, _, _ := strings.Cut(name, "/")
	return namespace
}

// program compiles a workflow once.
func (o *Owner) program(f *nodeapi.Function) (compiled, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.programs[f.GetName()]
	if c.of != f.GetWorkflow() {
		if c.predictor == nil || c.of.GetRevision() != f.GetWorkflow().GetRevision() {
			c.predictor = predict.New()
		}
		c.of = f.GetWorkflow()
		c.program, c.err = program.New(f.GetName(), c.of)
		o.programs[f.GetName()] = c
	}
	if c.err != nil {
		return c, problem.New(http.StatusServiceUnavailable, "WorkflowUnknown", "spec", "the node cannot run the workflow: "+c.err.Error())
	}
	return c, nil
}

// Set forgets the programs of workflows that are not among the functions any more.
func (o *Owner) Set(all []*nodeapi.Function) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := make(map[string]compiled, len(o.programs))
	for _, f := range all {
		if c, known := o.programs[f.GetName()]; known && f.GetWorkflow() != nil {
			kept[f.GetName()] = c
		}
	}
	o.programs = kept
}

// readInput is a request's body as JSON; without one it is an empty object.
func readInput(w http.ResponseWriter, r *http.Request) (any, error) {
	malformed := func(status int, why string) error {
		return problem.New(status, "WorkflowInputMalformed", "", "the request's body is to be JSON, or empty: "+why)
	}
	b, err := readAll(w, r)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, malformed(http.StatusRequestEntityTooLarge, fmt.Sprintf("it is larger than %d bytes", expression.SizeLimit))
	case err != nil:
		return nil, err
	case len(b) == 0:
		return map[string]any{}, nil
	}
	v, err := expression.Decode(b)
	if err != nil {
		return nil, malformed(http.StatusBadRequest, err.Error())
	}
	return v, nil
}

// answer writes a value.
func answer(w http.ResponseWriter, status int, kind string, v any) error {
	b, err := expression.Encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, err = w.Write(append(b, '\n'))
	return err
}

// run is one at work.
type run struct {
	owner     *Owner
	request   Request
	namespace string
	kept      int64           // of the memory of runs
	prepared  map[string]bool // by host
}

// turn goes on to another state, when it is the namespace's turn to compute.
func (r *run) turn(ctx context.Context, next func() *program.State) (*program.State, error) {
	leave, err := r.owner.turns.Wait(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	state := next()
	return state, r.keep(max(state.Memory(), leastMemory))
}

// release gives back all that the run has kept.
func (r *run) release() { r.owner.memory.change(r.request.Workflow.GetName(), -r.kept) }

// keep has the run count for so many bytes.
func (r *run) keep(bytes int64) error {
	if err := r.owner.take(r.request.Workflow.GetName(), bytes-r.kept); err != nil {
		return err
	}
	r.kept = bytes
	return nil
}

// take takes so many bytes more for a workflow's runs.
func (o *Owner) take(workflow string, bytes int64) error {
	if why := o.memory.change(workflow, bytes); why != "" {
		return problem.New(http.StatusServiceUnavailable, "TooManyInFlight", "", "the node has "+why)
	}
	return nil
}

// came is an answer for a step of a run.
type came struct {
	step   int
	answer program.Answer
	kept   int64 // of the memory of runs, for the answer's body
}

// finish runs a program to its end. All calls have ended when it returns.
func (r *run) finish(ctx context.Context, c compiled, input any) (any, *program.Fault, error) {
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	answers := make(chan came)
	under := map[int]context.CancelFunc{} // calls under way
	timer := time.NewTimer(0)
	defer timer.Stop()
	state, err := r.turn(ctx, func() *program.State { return c.program.Start(r.request.ID, input, time.Now()) })
	for err == nil {
		if output, fault, ended := state.Ended(); ended {
			c.predictor.Feed(state.Choices())
			return output, fault, nil
		}
		for _, host := range state.Ahead(c.predictor.Guess, aheadMost) {
			if r.prepared[host] {
				continue
			}
			r.prepared[host] = true
			calls.Go(func() { r.prepare(ctx, host) })
		}
		open := map[int]bool{}
		for _, step := range state.Open() {
			open[step.ID] = true
			if step.Request == nil || under[step.ID] != nil {
				continue
			}
			stepCtx, end := context.WithCancel(ctx)
			under[step.ID] = end
			calls.Go(func() {
				defer end()
				c := came{step: step.ID}
				c.answer = r.call(stepCtx, step, &c.kept)
				select {
				case answers <- c:
				case <-stepCtx.Done():
					r.owner.memory.change(r.request.Workflow.GetName(), -c.kept)
				}
			})
		}
		for id, end := range under {
			if !open[id] { // nobody waits for it any more
				end()
				delete(under, id)
			}
		}
		var elapsed <-chan time.Time
		if at := state.Deadline(); !at.IsZero() {
			timer.Reset(time.Until(at))
			elapsed = timer.C
		}
		select {
		case c := <-answers:
			delete(under, c.step)
			state, err = r.turn(ctx, func() *program.State { return state.Answer(c.step, c.answer, time.Now()) })
			r.owner.memory.change(r.request.Workflow.GetName(), -c.kept)
		case <-elapsed:
			state, err = r.turn(ctx, func() *program.State { return state.Elapse(time.Now()) })
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	return nil, nil, err
}

// prepare has the function of a host have an instance when its turn comes. If it cannot, the call says why.
func (r *run) prepare(ctx context.Context, host string) {
	f, err := r.find(ctx, host)
	if err != nil || f.GetWorkflow() != nil {
		return
	}
	r.owner.config.Metrics.prepared.WithLabelValues(r.request.Workflow.GetName()).Inc()
	r.request.Prepare(ctx, f.GetName(), r.request.Workflow.GetName())
}

// find returns the function that answers to a host, if the workflow may call it.
func (r *run) find(ctx context.Context, host string) (*nodeapi.Function, error) {
	f, err := r.owner.config.Find(ctx, host)
	if err != nil {
		return nil, err
	}
	return call.Allowed(f.GetName(), f, nil, r.namespace)
}

// call does what a step of a run is for. kept is what its answer has of the memory of runs.
func (r *run) call(ctx context.Context, step *program.Step, kept *int64) (a program.Answer) {
	ctx, span := tracer.Start(ctx, tracing.Step, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(tracing.WorkflowTask.String(step.Task)))
	defer func() {
		if a.Err != nil {
			span.SetStatus(codes.Error, problem.Of(a.Err).Title)
		}
		span.End()
	}()
	host := step.Request.URL.Host
	f, err := r.find(ctx, host)
	if err != nil {
		if problem.ReasonOf(err) == problem.ReasonFunctionUnknown {
			err = problem.New(http.StatusBadGateway, problem.ReasonFunctionUnknown, "", fmt.Sprintf("%.100q is no host of a function", host))
		}
		return program.Answer{Err: err}
	}
	span.SetAttributes(tracing.Function.String(f.GetName()))
	id := nodeapi.NewRequestID()
	out, err := newRequest(ctx, step.Request)
	if err == nil {
		out, err = call.Request(out, id, f, out.URL, call.By{Function: r.request.Workflow.GetName(), Depth: r.request.Depth})
	}
	if err != nil {
		return program.Answer{Err: err}
	}
	got := call.Do(r.request.Ingress, out, call.Keep{Most: expression.SizeLimit, Grow: func(bytes int) error {
		if err := r.owner.take(r.request.Workflow.GetName(), int64(bytes)); err != nil {
			return err
		}
		*kept += int64(bytes)
		return nil
	}})
	switch {
	case got.Failed != nil:
		return program.Answer{Err: problem.ForCaller(got.Failed, f.GetName(), id)}
	case got.Cut:
		return program.Answer{Err: fmt.Errorf("the answer's body is larger than %d bytes", expression.SizeLimit)}
	}
	return program.Answer{Status: got.Status, Header: got.Header, Body: got.Body}
}
