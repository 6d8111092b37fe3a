package local

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// jobsMost is how many jobs run at a time. Each is a container, and whoever orders one waits
// for it.
const jobsMost = 100

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/control-plane/platform/local")

// Outcome is how a job ended.
type Outcome struct {
	Node     string
	Instance string
	// Trace is the id of its trace, empty if there is none.
	Trace string
	// Reason is JobSucceeded, JobFailed for a program that ended with another code than 0, or
	// why it never ran to its end; Message and Field say more of it.
	Reason, Message, Field string
	// ExitCode is the program's, if that ended by itself.
	ExitCode int32
	// Log is the runtime's words, if it could not start the sandbox.
	Log []string
}

// The reasons that nodes do not give.
const (
	reasonJobLost    = "JobLost"
	reasonJobTimeout = "JobTimeout"
)

// job is one that runs.
type job struct {
	node string
	over chan Outcome // holds one
}

// RunJob runs a job and returns when it is over and nothing is left of it. It runs once: what
// goes wrong is the outcome. When ctx ends before, the job is stopped. An error that is the
// owner's to mend is a *platform.Refusal.
func (p *Platform) RunJob(ctx context.Context, j platform.Job) (o Outcome, err error) {
	ctx, span := tracer.Start(ctx, tracing.Job, trace.WithNewRoot(), trace.WithAttributes(tracing.Function.String(j.Name)))
	defer func() {
		if err != nil || o.Reason != reasonSucceeded {
			span.SetStatus(codes.Error, o.Reason)
		}
		span.End()
	}()
	id, running, err := p.startJob(ctx, j)
	if err != nil {
		return o, err
	}
	defer p.forgetJob(id)
	var late <-chan time.Time
	if j.Timeout > 0 {
		timer := time.NewTimer(j.Timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case o = <-running.over:
	case <-late:
		o = p.endJob(id, running)
		o.Reason, o.Field = reasonJobTimeout, "spec.activeDeadlineSeconds"
		o.Message = fmt.Sprintf("the job was ended after %s", j.Timeout)
	case <-ctx.Done():
		p.endJob(id, running)
		return o, context.Cause(ctx)
	}
	o.Node, o.Instance = running.node, id
	if at := span.SpanContext(); at.IsSampled() {
		o.Trace = at.TraceID().String()
	}
	return o, nil
}

// reasonSucceeded is a node's word for a program that ended with 0.
const reasonSucceeded = "JobSucceeded"

// startJob places a job and tells its node.
func (p *Platform) startJob(ctx context.Context, j platform.Job) (id string, running *job, err error) {
	select {
	case <-p.recovered:
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	_, span := tracer.Start(ctx, tracing.Placement, trace.WithAttributes(tracing.Function.String(j.Name)))
	defer span.End()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.jobs) == jobsMost {
		return "", nil, &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "PlatformFull",
			Message: fmt.Sprintf("%d jobs run already; run this one when one of them is over", jobsMost)}
	}
	f := platform.Function{Name: j.Name, Image: j.Image, Command: j.Command, Args: j.Args, Env: j.Env, CPULimitMillis: j.CPULimitMillis, MemoryLimit: j.MemoryLimit, Node: j.Node, Policy: j.Policy}
	node, err := p.place(f, "")
	if err != nil {
		return "", nil, err
	}
	id = newID(f)
	span.SetAttributes(tracing.Node.String(node), tracing.Instance.String(id))
	if err := p.nodes.Send(node, jobMessage(id, f, tracing.Traceparent(ctx))); err != nil {
		return "", nil, &platform.Refusal{Status: http.StatusServiceUnavailable, Reason: "NodeUnavailable", Message: "node " + node + " does not take jobs now; try again"}
	}
	running = &job{node: node, over: make(chan Outcome, 1)}
	p.jobs[id] = running
	return id, running, nil
}

func jobMessage(id string, f platform.Function, traceparent string) *nodeapi.ControlMessage {
	return &nodeapi.ControlMessage{Kind: &nodeapi.ControlMessage_Start{Start: &nodeapi.StartInstance{Id: id, Function: Message(f), Traceparent: traceparent,
		Volumes: f.Policy.Volumes.Message(id, f.Name), Connections: f.Policy.Connections.Message(id, f.Name, ""),
		Job: &nodeapi.Job{Id: id, Name: f.Name, Store: f.Policy.Store, Input: f.Policy.Input, InputLimit: f.Policy.InputLimit,
			ReadyTimeout: durationpb.New(f.Policy.ReadyTimeout), BySocket: f.Policy.ReadBySocket}}}}
}

func (p *Platform) forgetJob(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.jobs, id)
}

// endJob stops a job and waits until it is gone: the program's grace, and as long as its
// clean-up may take.
func (p *Platform) endJob(id string, running *job) Outcome {
	p.mu.Lock()
	p.stop(running.node, id)
	p.mu.Unlock()
	late := time.NewTimer(stopGrace + nodeGrace)
	defer late.Stop()
	select {
	case o := <-running.over:
		return o
	case <-late.C:
		return Outcome{}
	case <-p.life.Done():
		return Outcome{}
	}
}

// apply takes the word of the job's node; the platform's mu is held.
func (j *job) apply(s *nodeapi.InstanceStatus) {
	switch s.GetPhase() {
	case nodeapi.Phase_PHASE_FAILED, nodeapi.Phase_PHASE_STOPPED:
		j.end(Outcome{Reason: s.GetReason(), Message: s.GetMessage(), Field: s.GetField(), ExitCode: s.GetExitCode(),
			Log: nodeapi.LastLines(strings.Join(s.GetLog(), "\n"))})
	}
}

// end tells whoever waits, once.
func (j *job) end(o Outcome) {
	select {
	case j.over <- o:
	default:
	}
}

// jobsLost ends the jobs of a node that it does not run any more, by gone; the caller holds mu.
func (p *Platform) jobsLost(node string, gone func(id string) bool) {
	for id, j := range p.jobs {
		if j.node == node && gone(id) {
			j.end(Outcome{Reason: reasonJobLost, Message: fmt.Sprintf("node %s does not run the job any more, and did not say how it ended", node)})
		}
	}
}
