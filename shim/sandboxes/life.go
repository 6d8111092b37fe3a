package sandboxes

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/readiness"
)

const (
	// removeTimeout bounds the clean-up of one sandbox, beyond its grace.
	removeTimeout = 10 * time.Second
	// jobGrace is how much longer than its ready timeout a job's start may take: an input that
	// is late says so itself by then.
	jobGrace = 2 * time.Second
)

// run is a sandbox's life, from its start to its end or the set's.
func (l *Local) run(in *run, m *nodeapi.StartInstance) {
	l.report(in.status(nodeapi.Phase_PHASE_STARTING))
	c, at, err := l.bringUp(in, m)
	if err != nil {
		l.fail(in, c, err)
		return
	}
	if err := l.writeMeta(in); err != nil {
		l.config.Log.Warn("an instance will not survive the daemon's restart", "instance", in.id, "error", err)
	}
	l.config.Log.Info("instance is ready", "instance", in.id, "function", in.function, "address", at.String())
	l.settle(in, func() { in.at.Address, in.ready = at, true })
	l.report(in.status(nodeapi.Phase_PHASE_READY))
	l.watch(in, c)
}

// settle changes what those hear who wait for the sandbox.
func (l *Local) settle(in *run, change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	in.changed.Tell()
	l.serve(in.instance)
}

// bringUp makes the container and waits for readiness. With an error it returns what is
// to be removed.
func (l *Local) bringUp(in *run, m *nodeapi.StartInstance) (Container, netip.AddrPort, *problem.Problem) {
	f, timeout := m.GetFunction(), m.GetFunction().GetReadyTimeout().AsDuration()
	if in.job {
		timeout += jobGrace
	}
	ctx, cancel := context.WithTimeout(in.life, timeout)
	defer cancel()
	ctx = tracing.Continue(ctx, m.GetTraceparent())
	c, err := l.create(ctx, in, m)
	var at netip.AddrPort
	switch {
	case err != nil:
	case in.job:
		at, err = l.startJob(ctx, in, c)
	default:
		at, err = l.awaitReadyOrExit(ctx, in, c, f.GetProbePath())
	}
	if err != nil {
		return c, at, l.explain(ctx, in, err, f)
	}
	return c, at, nil
}

func (l *Local) create(ctx context.Context, in *run, m *nodeapi.StartInstance) (_ Container, err error) {
	whole, f := ctx, m.GetFunction()
	ctx, span := startSpan(ctx, tracing.SandboxCreate, in)
	defer func() { endSpan(span, err) }()
	if err := checkPort(in.port); err != nil && !in.job {
		return nil, err
	}
	if err := l.tree.make(in.id); err != nil {
		return nil, err
	}
	annotations := l.beginVolumes(m)
	if f.GetS3() != "" {
		annotations[filterapi.AnnotationS3] = f.GetS3()
	}
	if c := m.GetConnections(); c != nil {
		annotations[filterapi.AnnotationConnections] = strings.Join(c.GetDestinations(), ",")
	}
	if in.job {
		if err := l.beginJob(whole, m.GetJob(), annotations); err != nil {
			return nil, err
		}
	}
	sb := sandboxOf(in.id, in.function, in.job, false)
	sb.S3, sb.Connections = f.GetS3(), m.GetConnections()
	if f.GetRunsAhead() {
		if why := opens(f, f.GetS3(), m.GetConnections()); why != "" {
			l.notClosed(in.function, why)
		} else {
			sb.Gate = &nodeapi.Gate{Port: uint32(in.port)}
		}
	}
	n, err := l.bring(sb)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	in.needs, in.traceparent = n, tracing.Traceparent(ctx)
	l.mu.Unlock()
	c, err := l.containers.Create(ctx, Spec{
		ID: in.id, Function: in.function, Image: f.GetImage(), Command: f.GetCommand(), Args: f.GetArgs(),
		Env:            f.GetEnv(),
		CPULimitMillis: f.GetCpuLimitMillis(), MemoryLimit: f.GetMemoryLimit(), Annotations: annotations,
	})
	if unmet := n.failed(); err != nil && unmet != nil {
		return nil, unmet // what the shim was told, in its own words
	}
	return c, err
}

// beginVolumes has a sandbox's volumes fetched from now on, and returns what the shim is to know of them.
func (l *Local) beginVolumes(m *nodeapi.StartInstance) map[string]string {
	v := m.GetVolumes()
	if v == nil {
		return map[string]string{}
	}
	l.config.Volumes.Begin(v)
	namespace, _, _ := strings.Cut(m.GetFunction().GetName(), "/")
	annotations := map[string]string{
		filterapi.AnnotationVolumes: v.List(), nodeapi.NamespaceAnnotation: namespace,
	}
	if v.GetStartLate() {
		annotations[filterapi.AnnotationVolumesLate] = filterapi.LateStart
	}
	return annotations
}

// beginJob has a job's input fetched from now on, and adds what the shim is to know of it.
func (l *Local) beginJob(ctx context.Context, j *nodeapi.Job, annotations map[string]string) error {
	inputs, err := l.tree.inputs(j.GetId())
	if err != nil {
		return err
	}
	l.config.Jobs.Begin(ctx, j, inputs)
	if j.GetInput() == "" {
		return nil
	}
	annotations[filterapi.AnnotationInput] = j.GetInput()
	if j.GetBySocket() {
		annotations[filterapi.AnnotationReadBy] = filterapi.ReadBySocket
	}
	return nil
}

// startJob starts the program, once its needs are there.
func (l *Local) startJob(ctx context.Context, in *run, c Container) (_ netip.AddrPort, err error) {
	ctx, span := startSpan(ctx, tracing.RuntimeStart, in)
	defer func() { endSpan(span, err) }()
	at := netip.AddrPortFrom(c.Address(), 0)
	err = c.Start(ctx)
	if unmet := in.needs.failed(); err != nil && unmet != nil {
		return at, unmet // what the shim was told, in its own words
	}
	return at, err
}

func (l *Local) awaitReadyOrExit(ctx context.Context, in *run, c Container, path string) (_ netip.AddrPort, err error) {
	ctx, span := startSpan(ctx, tracing.RuntimeStart, in)
	defer func() { endSpan(span, err) }()
	at := netip.AddrPortFrom(c.Address(), uint16(in.port))
	if err := c.Start(ctx); err != nil {
		return at, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan error, 1)
	go func() { ready <- readiness.Await(ctx, at, path) }()
	select {
	case err := <-ready:
		return at, err
	case <-c.Exited():
		cancel()
		<-ready
		return at, exitedEarly(c.Exit())
	}
}

// fail ends a sandbox that never was ready. The control plane learns it before those
// who wait, or it would bind what they send again to the same instance; the clean-up
// holds up neither.
func (l *Local) fail(in *run, c Container, p *problem.Problem) {
	status := in.status(nodeapi.Phase_PHASE_FAILED)
	if _, stopped := stopRequested(in.life); stopped {
		status.Phase = nodeapi.Phase_PHASE_STOPPED
	} else {
		status.Reason, status.Message, status.Field, status.Log = p.Title, p.Detail, p.Field, in.words
	}
	settled := func() { in.failure = p }
	if in.job { // nobody else waits, and its caller finds nothing left
		l.settle(in, settled)
		l.endJob(in, c, status, p)
		return
	}
	l.report(status)
	l.settle(in, settled)
	l.end(in, c, 0, p)
	l.lastLines(status, c)
}

// lastLines tells what a removed container has logged last, if it has a reason for its end. The
// control plane has heard of that before, when requests depended on it.
func (l *Local) lastLines(ended *nodeapi.InstanceStatus, c Container) {
	if c == nil || ended.GetReason() == "" {
		return
	}
	if lines := nodeapi.LastLines(c.Output()); len(lines) > 0 {
		l.report(&nodeapi.InstanceStatus{
			Id: ended.GetId(), Function: ended.GetFunction(), Phase: ended.GetPhase(), Log: lines,
		})
	}
}

// watch owns a ready sandbox until it ends by itself, is stopped, or the set closes.
func (l *Local) watch(in *run, c Container) {
	status := in.status(nodeapi.Phase_PHASE_STOPPED)
	select {
	case <-in.life.Done():
		if grace, stopped := stopRequested(in.life); stopped {
			l.end(in, c, grace, problem.InstanceGone())
			l.tell(in, status)
		}
	case <-c.Exited():
		if in.job {
			l.finish(in, c, status)
			return
		}
		status.Reason, status.Field = reasonExited, fieldContainer
		status.Message = fmt.Sprintf("the function's program %v", c.Exit())
		l.report(status) // first: requests are still sent to it
		l.end(in, c, 0, problem.InstanceGone())
		l.lastLines(status, c)
	}
}

// finish ends a job whose program ended by itself. When that is told nothing is left.
func (l *Local) finish(in *run, c Container, status *nodeapi.InstanceStatus) {
	status.ExitCode = int32(c.Exit().Code)
	status.Reason, status.Message = reasonSucceeded, fmt.Sprintf("the job's program %v", c.Exit())
	if status.ExitCode != 0 {
		status.Reason, status.Field = reasonJobFailed, fieldContainer
	}
	l.endJob(in, c, status, problem.InstanceGone())
}

// endJob leaves nothing of a job, and tells how it ended. That is noted before: to remove a sandbox takes long enough for
// the daemon to end, and the next one tells it then.
func (l *Local) endJob(in *run, c Container, status *nodeapi.InstanceStatus, why *problem.Problem) {
	ofItself := status.GetReason() != "" && !(status.GetPhase() == nodeapi.Phase_PHASE_FAILED && l.ctx.Err() != nil)
	if ofItself { // and neither stopped, nor given up by a daemon that ends
		l.noteEnd(in.id, status)
	}
	l.end(in, c, 0, why)
	l.tell(in, status)
}

// tell reports the end of a sandbox of which nothing is left.
func (l *Local) tell(in *run, status *nodeapi.InstanceStatus) {
	l.report(status)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.ending, in.id)
}

// end leaves nothing of a sandbox but why it ended, for the requests that still come.
// c is nil when no container was made.
func (l *Local) end(in *run, c Container, grace time.Duration, why *problem.Problem) {
	now := time.Now()
	l.mu.Lock()
	delete(l.runs, in.id)
	if in.job {
		l.ending[in.id] = in
	}
	delete(l.instances, in.id)
	l.serve(in.instance)
	maps.DeleteFunc(l.gone, func(_ string, d departure) bool { return now.Sub(d.at) > goneMemory })
	l.gone[in.id] = departure{at: now, why: why}
	l.mu.Unlock()
	in.stop(nil) // its context is not needed any more
	if in.job {
		l.config.Jobs.Release(in.id) // its program may be stopped while it waits
	}
	if c != nil {
		l.remove(c, grace)
	}
	if in.job && (l.ctx.Err() != nil || l.heard.Err() != nil) {
		return // nobody hears of its end now: the next daemon tells it
	}
	if _, err := l.tree.remove(in.id); err != nil {
		l.config.Log.Error("an instance has left files", "instance", in.id, "error", err)
	}
}

func (l *Local) remove(c Container, grace time.Duration) {
	attempt := func(ctx context.Context, grace time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, grace+removeTimeout)
		defer cancel()
		return c.Remove(ctx, grace)
	}
	err := attempt(l.ctx, grace)
	if l.ctx.Err() != nil {
		// The daemon ends, and with it the time to end: nobody would see to the kill.
		err = attempt(context.WithoutCancel(l.ctx), 0)
	}
	if err != nil {
		l.config.Log.Error("a sandbox could not be removed", "instance", c.ID(), "error", err)
	}
}

func startSpan(ctx context.Context, name string, in *run) (context.Context, trace.Span) {
	return tracer.Start(ctx, name,
		trace.WithAttributes(tracing.Function.String(in.function), tracing.Instance.String(in.id)))
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
	}
	span.End()
}
