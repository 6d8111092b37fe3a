package instance

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/readiness"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/instance")

// removeTimeout bounds the clean-up of one sandbox, beyond its grace.
const removeTimeout = 10 * time.Second

// run is an instance's life, from its start to its end or the set's.
func (s *Set) run(in *instance, m *nodeapi.StartInstance) {
	s.report(in.status(nodeapi.Phase_PHASE_STARTING))
	sb, err := s.bringUp(in, m)
	if err != nil {
		s.fail(in, sb, err)
		return
	}
	if err := s.dir.writeMeta(in.id, meta{Port: in.port, Job: in.job}); err != nil {
		s.log.Warn("an instance will not survive the daemon's restart", "instance", in.id, "error", err)
	}
	s.log.Info("instance is ready", "instance", in.id, "function", in.function, "address", in.address.String())
	close(in.settled)
	s.report(in.status(nodeapi.Phase_PHASE_READY))
	s.watch(in, sb)
}

// bringUp makes the sandbox and waits for readiness. With an error it returns what is
// to be removed.
func (s *Set) bringUp(in *instance, m *nodeapi.StartInstance) (Sandbox, *problem.Problem) {
	f, timeout := m.GetFunction(), m.GetFunction().GetReadyTimeout().AsDuration()
	if in.job {
		timeout += jobGrace
	}
	ctx, cancel := context.WithTimeout(in.life, timeout)
	defer cancel()
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": m.GetTraceparent()})
	sb, err := s.create(ctx, in, m)
	switch {
	case err != nil:
	case in.job:
		err = s.startJob(ctx, in, sb)
	default:
		err = s.awaitReadyOrExit(ctx, in, sb, f.GetProbePath())
	}
	if err != nil {
		return sb, s.explain(ctx, in, err, f)
	}
	return sb, nil
}

func (s *Set) create(ctx context.Context, in *instance, m *nodeapi.StartInstance) (_ Sandbox, err error) {
	whole, f := ctx, m.GetFunction()
	ctx, span := startSpan(ctx, tracing.SandboxCreate, in)
	defer func() { endSpan(span, err) }()
	if err := checkPort(in.port); err != nil && !in.job {
		return nil, err
	}
	inputs, err := s.dir.make(in.id)
	if err != nil {
		return nil, err
	}
	socket := s.makeSocket(in)
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	s.mu.Lock()
	in.inputs, in.socket, in.traceparent = inputs, socket, carrier["traceparent"]
	s.mu.Unlock()
	annotations := s.beginJob(whole, in, m.GetJob())
	return s.runtime.Create(ctx, Spec{Annotations: annotations, ID: in.id, Function: in.function, Image: f.GetImage(), Command: f.GetCommand(), Args: f.GetArgs(),
		Env: f.GetEnv(), CPULimitMillis: f.GetCpuLimitMillis(), MemoryLimit: f.GetMemoryLimit()})
}

func (s *Set) awaitReadyOrExit(ctx context.Context, in *instance, sb Sandbox, path string) (err error) {
	ctx, span := startSpan(ctx, tracing.RuntimeStart, in)
	defer func() { endSpan(span, err) }()
	if err := sb.Start(ctx); err != nil {
		return err
	}
	in.address = netip.AddrPortFrom(sb.Address(), uint16(in.port))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- readiness.Await(ctx, in.address, path) }()
	select {
	case err := <-ready:
		return err
	case <-sb.Exited():
		cancel()
		<-ready
		return exitedEarly(sb.ExitCode())
	}
}

// fail ends an instance that never was ready. The control plane learns it before those
// who wait, or it would bind what they send again to the same instance; the clean-up
// holds up neither.
func (s *Set) fail(in *instance, sb Sandbox, p *problem.Problem) {
	status := in.status(nodeapi.Phase_PHASE_FAILED)
	if _, stopped := stopRequested(in.life); stopped {
		status.Phase = nodeapi.Phase_PHASE_STOPPED
	} else {
		status.Reason, status.Message, status.Field, status.Log = p.Title, p.Detail, p.Field, in.words
	}
	in.err = p
	if in.job { // nobody else waits, and whoever runs it is to find nothing left
		close(in.settled)
		s.end(in, sb, 0, p)
		s.report(status)
		return
	}
	s.report(status)
	close(in.settled)
	s.end(in, sb, 0, p)
	s.lastLines(status, sb)
}

// lastLines tells what a removed sandbox has logged last, if it has a reason for its end. The
// control plane has heard of that before, when requests depended on it.
func (s *Set) lastLines(ended *nodeapi.InstanceStatus, sb Sandbox) {
	if sb == nil || ended.GetReason() == "" {
		return
	}
	if lines := nodeapi.LastLines(sb.Output()); len(lines) > 0 {
		s.report(&nodeapi.InstanceStatus{Id: ended.GetId(), Function: ended.GetFunction(), Phase: ended.GetPhase(), Log: lines})
	}
}

// watch owns a ready instance until it ends by itself, is stopped, or the set closes.
func (s *Set) watch(in *instance, sb Sandbox) {
	status := in.status(nodeapi.Phase_PHASE_STOPPED)
	select {
	case <-in.life.Done():
		if grace, stopped := stopRequested(in.life); stopped {
			s.end(in, sb, grace, problem.InstanceGone())
			s.report(status)
		}
	case <-sb.Exited():
		if in.job {
			s.finish(in, sb, status)
			return
		}
		status.Reason, status.Field = reasonExited, fieldContainer
		status.Message = fmt.Sprintf("the function's program ended by itself with code %d", sb.ExitCode())
		s.report(status) // first: requests are still sent to it
		s.end(in, sb, 0, problem.InstanceGone())
		s.lastLines(status, sb)
	}
}

// end leaves nothing of an instance but why it ended, for the requests that still come.
// sb is nil when none was made.
func (s *Set) end(in *instance, sb Sandbox, grace time.Duration, why *problem.Problem) {
	now := time.Now()
	s.mu.Lock()
	delete(s.instances, in.id)
	maps.DeleteFunc(s.gone, func(_ string, d departure) bool { return now.Sub(d.at) > goneMemory })
	s.gone[in.id] = departure{at: now, why: why}
	s.mu.Unlock()
	in.stop(nil) // its context is not needed any more
	if in.job {
		s.jobs.End(in.id)
	}
	if sb != nil {
		s.remove(sb, grace)
	}
	if in.inputs != nil {
		_ = in.inputs.Close() // it was only read from
	}
	s.closeSocket(in.id)
	if err := s.dir.remove(in.id); err != nil {
		s.log.Error("an instance has left files", "instance", in.id, "error", err)
	}
}

func (s *Set) remove(sb Sandbox, grace time.Duration) {
	attempt := func(ctx context.Context, grace time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, grace+removeTimeout)
		defer cancel()
		return sb.Remove(ctx, grace)
	}
	err := attempt(s.ctx, grace)
	if s.ctx.Err() != nil {
		// The daemon ends, and with it the time to end: nobody would see to the kill.
		err = attempt(context.WithoutCancel(s.ctx), 0)
	}
	if err != nil {
		s.log.Error("a sandbox could not be removed", "instance", sb.ID(), "error", err)
	}
}

func startSpan(ctx context.Context, name string, in *instance) (context.Context, trace.Span) {
	return tracer.Start(ctx, name, trace.WithAttributes(tracing.Function.String(in.function), tracing.Instance.String(in.id)))
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
	}
	span.End()
}
