// Package workflow answers requests for workflows, on the node where they enter: it runs their programs, and calls their
// functions by the node's own ingress.
package workflow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/attempt"
	"github.com/headstart-mesh/headstart/shim/call"
	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/expression"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/workflow/journal"
	"github.com/headstart-mesh/headstart/shim/workflow/lessons"
	"github.com/headstart-mesh/headstart/shim/workflow/memo"
	"github.com/headstart-mesh/headstart/shim/workflow/predict"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/workflow")

// Config is what an owner is made of.
type Config struct {
	// Find returns the function that answers to a host, or a *problem.Problem.
	Find func(ctx context.Context, host string) (*nodeapi.Function, error)
	// Outside returns what sends requests to a URL's server that is no function, for workflows of a namespace, and its name; nil: they
	// may not call it.
	Outside func(namespace string, u *url.URL) (http.RoundTripper, string)
	// Store returns what asks the Redis of a destination for a workflow, or a *problem.Problem.
	Store func(workflow, destination string) (*redis.Client, error)
	// Busy is which part of the node's processors is taken, 0 to 1; nil: nobody knows.
	Busy func() float64
	// Event tells the operator.
	Event   func(*nodeapi.Event)
	Metrics *Metrics
}

const (
	// memoryOfNode bounds what the values of all runs take, in bytes: a part of what the chart gives the daemon.
	memoryOfNode = 32 << 20
	// aheadOfNode bounds what is known ahead of them, and what was answered before its turn. Without room, runs look no further.
	aheadOfNode = 16 << 20
	// leastMemory is what a run counts for at least, in bytes.
	leastMemory = 8 << 10
	// outsideMost is how many calls of servers outside a node makes at the same time: each may take a connection.
	outsideMost = 256
)

// Owner runs workflows. Its methods may be called at the same time. What runs have of the node is shared out fairly among
// namespaces.
type Owner struct {
	config Config
	memory *memory
	ahead  *memory      // for what lies ahead of runs
	turns  *fair.Places // those that compute
	// outside are the calls of servers that are no functions.
	outside *fair.Places
	tables  *memo.Tables

	revisions revisions

	ctx        context.Context // ends the background
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu       sync.Mutex
	programs map[string]compiled // by the workflow's name
}

// compiled is a program, or why there is none.
type compiled struct {
	of        *nodeapi.Workflow
	program   *program.Program
	predictor *predict.Predictor
	load      *load
	record    *record
	shared    *shared
	stalls    *attempt.Stalls
	err       error
}

// New returns an owner of no runs.
func New(c Config) *Owner {
	ctx, cancel := context.WithCancel(context.Background())
	return &Owner{ctx: ctx, cancel: cancel, config: c, programs: map[string]compiled{}, memory: &memory{share: fair.NewShare(memoryOfNode)}, ahead: &memory{share: fair.NewShare(aheadOfNode)},
		turns: fair.NewPlaces(int64(max(2, runtime.GOMAXPROCS(0)))), outside: fair.NewPlaces(outsideMost), tables: memo.New(), revisions: revisions{of: map[*nodeapi.Function]string{}, late: map[string]bool{}}}
}

// Close ends what is done besides runs. There are none any more.
func (o *Owner) Close() {
	o.cancel()
	o.background.Wait()
}

// Request is one that a workflow is to answer.
type Request struct {
	ID       string
	Workflow *nodeapi.Function
	Depth    int // of calls of functions by functions
	// Ingress takes the requests for functions.
	Ingress http.Handler
	// Ahead has an instance of the node work on a request before its turn, and returns at once when the attempt is squashed.
	Ahead func(a *attempt.Attempt, r *http.Request, keep call.Keep) call.Answer
	// Load tells how many instances of a function the node has, and how many of them work on requests in their turn.
	Load func(function string) (all, turns, free int)
	// Prepare has a function have an instance, if it has none. It may return before there is one.
	Prepare func(ctx context.Context, function, caller string)
}

// Serve answers a request. Its error is why there is no run; a run that fails is an answer.
func (o *Owner) Serve(ctx context.Context, w http.ResponseWriter, r *http.Request, q Request) error {
	c, err := o.program(q.Workflow)
	if err != nil {
		return err
	}
	body, input, err := readInput(w, r)
	if err != nil {
		return err
	}
	w.Header().Set(filterapi.HeaderRequest, q.ID)
	run := newRun(o, c, q)
	defer func() { _ = run.keep(0) }() // what is given back has no limit
	notes, of, err := o.open(ctx, r, q, body)
	if err != nil {
		retryAfter(w, err)
		return err
	}
	if of.End != nil {
		return again(w, of.End)
	}
	ctx, cancel := context.WithTimeout(ctx, q.Workflow.GetRequestTimeout().AsDuration())
	defer cancel()
	ctx = fair.For(ctx, q.Workflow.GetName())
	run.notes = notes
	o.exchange(c, q)
	defer o.exchange(c, q)
	began := time.Now()
	output, fault, err := run.finish(ctx, input, of)
	result := resultOf(fault, err)
	o.config.Metrics.observe(q.Workflow.GetName(), began, result)
	run.ended(began, result)
	end, err := endOf(ctx, q.Workflow, output, fault, err)
	if err == nil {
		err = notes.end(ctx, *end)
	}
	if err != nil {
		notes.release(ctx)
		return err
	}
	return again(w, end)
}

// endOf is what a run has come to, or why it has come to nothing.
func endOf(ctx context.Context, of *nodeapi.Function, output any, fault *program.Fault, err error) (*journal.End, error) {
	end := &journal.End{Status: http.StatusOK, Kind: "application/json"}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, problem.New(http.StatusGatewayTimeout, problem.ReasonFunctionTimeout, "spec.timeout",
			fmt.Sprintf("the workflow did not end within %s", of.GetRequestTimeout().AsDuration()))
	case err != nil:
		return nil, err
	case fault != nil:
		trace.SpanFromContext(ctx).SetStatus(codes.Error, fault.Type)
		end.Status, end.Kind, output = fault.Status, filterapi.ProblemContentType, fault.Value()
	}
	b, err := expression.Encode(output)
	end.Body = append(b, '\n')
	return end, err
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
			c.predictor, c.load, c.record, c.stalls = predict.New(), &load{}, newRecord(f.GetName()), attempt.NewStalls()
			c.shared = &shared{stream: lessons.New(f.GetName(), f.GetWorkflow().GetRevision())}
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
	o.revisions.set(all)
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

// readInput is a request's body, and that as JSON; without one it is an empty object.
func readInput(w http.ResponseWriter, r *http.Request) ([]byte, any, error) {
	malformed := func(status int, why string) error {
		return problem.New(status, "WorkflowInputMalformed", "", "the request's body is to be JSON, or empty: "+why)
	}
	b, err := readAll(w, r)
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, nil, malformed(http.StatusRequestEntityTooLarge, fmt.Sprintf("it is larger than %d bytes", expression.SizeLimit))
	case err != nil:
		return nil, nil, err
	case len(b) == 0:
		return nil, map[string]any{}, nil
	}
	v, err := expression.Decode(b)
	if err != nil {
		return nil, nil, malformed(http.StatusBadRequest, err.Error())
	}
	return b, v, nil
}
