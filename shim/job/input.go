package job

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// job is one of them, and its input.
type job struct {
	config Config
	about  *nodeapi.Job
	id     string
	root   trace.Span // nil: somebody else has the trace's
	trace  context.Context

	// over ends with the job.
	over context.Context
	stop context.CancelFunc
	// turn holds who looks after the fields below. A pod may have several containers.
	turn chan struct{}

	input       *objects.Input // nil: not being fetched
	deadline    time.Time
	endDelivery func()
}

func newJob(ctx context.Context, c Config, about *nodeapi.Job) *job {
	j := &job{config: c, about: about, id: about.GetId(), turn: make(chan struct{}, 1), trace: ctx}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		j.trace, j.root = tracer.Start(context.WithoutCancel(ctx), tracing.Job, trace.WithAttributes(j.attributes()...))
	}
	j.over, j.stop = context.WithCancel(context.Background())
	return j
}

// quota is whose part of the buffer a job's input takes: all jobs of a namespace have one
// together. Their own names are as many as their owner likes, also for metrics. It is no
// name that a function can have.
func quota(job string) string {
	namespace, _, _ := strings.Cut(job, "/")
	return namespace + "/(jobs)"
}

// fetch has the input fetched; the caller has the turn, or the job alone.
func (j *job) fetch() {
	if j.about.GetInput() == "" || j.about.GetRefused() != nil {
		return
	}
	j.deadline = time.Now().Add(j.about.GetReadyTimeout().AsDuration())
	j.input = j.config.Objects.Fetch(j.trace, objects.Request{ID: Name + ":" + j.id, Function: quota(j.about.GetName()),
		Store: j.about.GetStore(), Reference: j.about.GetInput(), Limit: j.about.GetInputLimit()})
	j.endDelivery = j.config.Deliveries.Begin(j.id, sandboxes.Delivery{Request: Name,
		Inputs: map[string]sandboxes.Input{"": j.input}, Traceparent: tracing.Traceparent(j.trace)})
}

// refused is why the job gets no input, whatever the store has; nil if it may get one.
func (j *job) refused() error {
	if r := j.about.GetRefused(); r != nil {
		return problem.New(int(r.GetStatus()), problem.Reason(r.GetReason()), r.GetField(), r.GetMessage())
	}
	return nil
}

// drop lets go of the input; the caller has the turn.
func (j *job) drop() {
	if j.input == nil {
		return
	}
	j.endDelivery() // reads end before what they read from does
	j.input.Tell(j.trace, tracer, tracing.Fetch, trace.SpanKindClient, j.about.GetInput(), j.attributes()...)
	j.input.Release()
	j.input = nil
}

// stage has the complete input appear in dir.
func (j *job) stage(ctx context.Context, dir *staging.Dir) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(j.over, cancel)()
	select {
	case j.turn <- struct{}{}:
	case <-ctx.Done():
		return j.ended(ctx)
	}
	defer func() { <-j.turn }()
	if err := j.refused(); err != nil {
		return err
	}
	if j.about.GetInput() == "" || has(dir) {
		return nil
	}
	if j.input == nil {
		j.fetch()
	}
	err := j.await(ctx)
	if err == nil {
		err = j.place(ctx, dir)
	}
	if err != nil && ctx.Err() != nil {
		return j.ended(ctx)
	}
	if err != nil {
		j.config.Log.Warn("a job's input cannot be had", "job", j.about.GetName(), "instance", j.id, "reason", problem.Of(err).Title, "error", err)
		j.drop()
	}
	return err
}

// ended is why nobody waits any more.
func (j *job) ended(ctx context.Context) error {
	if j.over.Err() != nil {
		return problem.InstanceGone()
	}
	return context.Cause(ctx)
}

// await waits for the input until the job's deadline.
func (j *job) await(ctx context.Context) error {
	ctx, cancel := context.WithDeadline(ctx, j.deadline)
	defer cancel()
	err := j.input.Wait(ctx)
	if err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded) || !j.input.Ended().IsZero() {
		return err
	}
	late := source.TimedOut(j.about.GetStore())
	late.Field = filterapi.AnnotationInput
	late.Detail += fmt.Sprintf(
		"; %s, now %s, bounds the wait for the input", filterapi.AnnotationReadyTimeout,
		j.about.GetReadyTimeout().AsDuration(),
	)
	return source.Because(late, err)
}

// place gives the complete input its name in the sandbox.
func (j *job) place(ctx context.Context, dir *staging.Dir) (err error) {
	_, span := tracer.Start(j.trace, tracing.Transfer, trace.WithAttributes(tracing.TransferKind.String(tracing.TransferLocal)))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, problem.Of(err).Title)
		}
		span.End()
	}()
	_ = dir.Remove(Name) // what a daemon left that was killed at this place
	err = j.input.Link(ctx, dir, Name)
	if errors.Is(err, buffer.ErrNoFile) {
		return source.Because(problem.New(http.StatusInsufficientStorage, problem.ReasonBufferFull, "",
			"the node's disk has no room for the input as a file; a job that reads it by the socket needs none"), err)
	}
	if err != nil {
		return fmt.Errorf("giving a job its input: %w", err)
	}
	return nil
}

// end ends the job for this process.
func (j *job) end() {
	j.stop()
	j.turn <- struct{}{} // whoever has it gives it back now
	defer func() { <-j.turn }()
	j.drop()
	if j.root != nil {
		j.root.End()
	}
}

func (j *job) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{tracing.Function.String(j.about.GetName()), tracing.Instance.String(j.id)}
}

// has tells whether the sandbox has its input already. Its name comes last, so it is whole.
func has(dir *staging.Dir) bool {
	_, err := dir.Input.Lstat(Name)
	return err == nil
}
