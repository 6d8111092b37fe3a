package instance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Fields of the manifest that an instance's failure may point to.
const (
	fieldImage        = "spec.template.spec.containers[0].image"
	fieldContainer    = "spec.template.spec.containers[0]"
	fieldReadyTimeout = "headstart.dev/ready-timeout"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/instance")

// removeGrace is what a program gets between the signal to end and the kill when
// nobody said otherwise; the kubelet's default of 30 s would hold up a shutdown.
const removeGrace = 2 * time.Second

// announceTimeout is how long a request may be ahead of the news of its instance: a
// few round trips between nodes and control plane.
const announceTimeout = 2 * time.Second

// removeTimeout bounds the clean-up of one sandbox, beyond its grace.
const removeTimeout = 10 * time.Second

// Set holds the node's instances. Its zero value is not usable; see Open.
type Set struct {
	runtime Runtime
	dir     string
	// report tells the control plane of a change; it must not block.
	report func(*nodeapi.InstanceStatus)
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	instances map[string]*instance
	announced chan struct{} // closed and replaced when an instance is added
}

type instance struct {
	id, function string
	port         int32
	traceparent  string   // the shim's parent
	inputs       *os.Root // the directory that the sandbox sees as /headstart/input
	stop         chan time.Duration
	settled      chan struct{} // closed when ready or failed
	gone         chan struct{} // closed when nothing is left of it

	// Written before settled is closed.
	address netip.AddrPort
	err     error
}

// Open returns the set of instances below dir, which it makes, with those that run
// already.
func Open(ctx context.Context, runtime Runtime, dir string, report func(*nodeapi.InstanceStatus), log *slog.Logger) (*Set, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the instances' directory: %w", err)
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Set{runtime: runtime, dir: dir, report: report, log: log, ctx: life, cancel: cancel,
		instances: map[string]*instance{}, announced: make(chan struct{})}
	if err := s.adopt(ctx); err != nil {
		cancel()
		return nil, err
	}
	return s, nil
}

// adopt takes over what runs from before a restart and removes the rest. Adopted
// instances were ready once, so they count as ready without another probe.
func (s *Set) adopt(ctx context.Context) error {
	running, err := s.runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing the sandboxes that run: %w", err)
	}
	keep := map[string]bool{}
	for _, sb := range running {
		meta, err := s.readMeta(sb.ID())
		if err != nil {
			s.log.Warn("a sandbox of an earlier run is not ours to keep", "instance", sb.ID(), "error", err)
			s.remove(sb, 0)
			continue
		}
		in := s.newInstance(sb.ID(), sb.Function(), meta.Port)
		if in.inputs, err = s.inputDir(in.id); err != nil {
			return err
		}
		in.address = netip.AddrPortFrom(sb.Address(), uint16(meta.Port))
		close(in.settled)
		s.instances[in.id] = in
		keep[in.id] = true
		s.wg.Go(func() { s.watch(in, sb) })
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("reading the instances' directory: %w", err)
	}
	for _, e := range entries {
		if !keep[e.Name()] {
			if err := os.RemoveAll(filepath.Join(s.dir, e.Name())); err != nil {
				return fmt.Errorf("removing what an instance left: %w", err)
			}
		}
	}
	return nil
}

func (s *Set) newInstance(id, function string, port int32) *instance {
	return &instance{id: id, function: function, port: port,
		stop: make(chan time.Duration, 1), settled: make(chan struct{}), gone: make(chan struct{})}
}

// Start makes an instance in the background. A second call with the same id is
// ignored: the control plane repeats itself after a reconnect.
func (s *Set) Start(m *nodeapi.StartInstance) {
	f := m.GetFunction()
	in := s.newInstance(m.GetId(), f.GetName(), f.GetPort())
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.instances[in.id]; known || s.ctx.Err() != nil {
		return
	}
	s.instances[in.id] = in
	close(s.announced)
	s.announced = make(chan struct{})
	s.wg.Go(func() { s.run(in, f, m.GetTraceparent()) })
}

// Stop ends an instance; an unknown one is gone already.
func (s *Set) Stop(id string, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in, ok := s.instances[id]; ok {
		select {
		case in.stop <- grace:
		default: // it is being stopped
		}
	}
}

// Ready waits until the instance takes requests and returns its address, or the
// *problem.Problem that keeps it from that.
func (s *Set) Ready(ctx context.Context, id string) (netip.AddrPort, error) {
	in, err := s.find(ctx, id)
	if err != nil {
		return netip.AddrPort{}, err
	}
	select {
	case <-in.settled:
		return in.address, in.err
	case <-ctx.Done():
		return netip.AddrPort{}, ctx.Err()
	}
}

// find returns the instance, waiting a little for its start to be announced: a
// request from another node can overtake the control plane's message.
func (s *Set) find(ctx context.Context, id string) (*instance, error) {
	late := time.NewTimer(announceTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		in, ok := s.instances[id]
		announced := s.announced
		s.mu.Unlock()
		if ok {
			return in, nil
		}
		select {
		case <-announced:
		case <-late.C:
			return nil, problem.New(http.StatusServiceUnavailable, "InstanceGone", "", "the instance that was to answer is gone; try again")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Inputs is the directory that the instance's sandbox sees as /headstart/input, or
// nil when the instance is gone.
func (s *Set) Inputs(id string) *os.Root {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in, ok := s.instances[id]; ok {
		return in.inputs
	}
	return nil
}

// Statuses returns what runs, for a registration.
func (s *Set) Statuses() []*nodeapi.InstanceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*nodeapi.InstanceStatus
	for _, in := range s.instances {
		st := &nodeapi.InstanceStatus{Id: in.id, Function: in.function, Phase: nodeapi.Phase_PHASE_STARTING}
		select {
		case <-in.settled:
			if in.err != nil {
				continue
			}
			st.Phase, st.Address = nodeapi.Phase_PHASE_READY, in.address.String()
		default:
		}
		all = append(all, st)
	}
	return all
}

// Describe answers a shim: what belongs in the sandbox.
func (s *Set) Describe(id, otlpTarget string) (*nodeapi.DescribeResponse, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, ok := s.instances[id]
	if !ok || in.inputs == nil {
		return nil, false
	}
	return &nodeapi.DescribeResponse{
		Mounts:      []*nodeapi.Mount{{Source: in.inputs.Name(), Destination: InputMount, ReadOnly: true}},
		Env:         map[string]string{"HEADSTART_INPUT_DIR": InputMount, "HEADSTART_INSTANCE": in.id},
		Traceparent: in.traceparent,
		OtlpTarget:  otlpTarget,
	}, true
}

// Close ends the set's watch over its instances and waits for it. The instances go
// on: a daemon's restart stops no function.
func (s *Set) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *Set) run(in *instance, f *nodeapi.Function, traceparent string) {
	ctx, cancel := context.WithTimeout(s.ctx, f.GetReadyTimeout().AsDuration())
	defer cancel()
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
	s.report(&nodeapi.InstanceStatus{Id: in.id, Function: in.function, Phase: nodeapi.Phase_PHASE_STARTING})
	sb, err := s.bringUp(ctx, in, f)
	if err != nil {
		if s.ctx.Err() != nil { // the daemon ends: what is half-made is swept at its next start
			in.err = problem.New(http.StatusServiceUnavailable, "DaemonStopping", "", "the node's daemon is being stopped")
			close(in.settled)
			close(in.gone)
			return
		}
		s.fail(in, err)
		return
	}
	s.log.Info("instance is ready", "instance", in.id, "function", in.function, "address", in.address.String())
	close(in.settled)
	s.report(&nodeapi.InstanceStatus{Id: in.id, Function: in.function, Phase: nodeapi.Phase_PHASE_READY, Address: in.address.String()})
	s.watch(in, sb)
}

// bringUp makes the sandbox and waits for readiness. On error nothing is left.
func (s *Set) bringUp(ctx context.Context, in *instance, f *nodeapi.Function) (Sandbox, error) {
	attrs := trace.WithAttributes(tracing.Function.String(in.function), tracing.Instance.String(in.id))
	sb, err := func() (_ Sandbox, err error) {
		ctx, span := tracer.Start(ctx, tracing.SandboxCreate, attrs)
		defer func() { endSpan(span, err) }()
		inputs, err := s.inputDir(in.id)
		if err != nil {
			return nil, err
		}
		carrier := propagation.MapCarrier{}
		propagation.TraceContext{}.Inject(ctx, carrier)
		s.mu.Lock()
		in.inputs, in.traceparent = inputs, carrier["traceparent"]
		s.mu.Unlock()
		if err := s.writeMeta(in.id, meta{Port: in.port}); err != nil {
			return nil, err
		}
		return s.runtime.Create(ctx, Spec{ID: in.id, Function: in.function, Image: f.GetImage(), Command: f.GetCommand(), Args: f.GetArgs(),
			Env: f.GetEnv(), CPULimitMillis: f.GetCpuLimitMillis(), MemoryLimit: f.GetMemoryLimit()})
	}()
	if err != nil {
		return nil, s.explain(ctx, err, f)
	}
	err = func() (err error) {
		ctx, span := tracer.Start(ctx, tracing.RuntimeStart, attrs)
		defer func() { endSpan(span, err) }()
		if err := sb.Start(ctx); err != nil {
			return err
		}
		in.address = netip.AddrPortFrom(sb.Address(), uint16(in.port))
		return s.awaitReadyOrExit(ctx, in, sb, f.GetProbePath())
	}()
	if err != nil {
		err = s.explain(ctx, err, f)
		s.remove(sb, 0)
		return nil, err
	}
	return sb, nil
}

var errStopped = errors.New("stopped while it was starting")

func (s *Set) awaitReadyOrExit(ctx context.Context, in *instance, sb Sandbox, path string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan error, 1)
	go func() { ready <- awaitReady(ctx, in.address, path) }()
	select {
	case err := <-ready:
		return err
	case <-sb.Exited():
		cancel(nil)
		<-ready
		return problem.New(http.StatusBadGateway, "FunctionExited", fieldContainer,
			fmt.Sprintf("the function's program ended with code %d before it was ready", sb.ExitCode()))
	case <-in.stop:
		cancel(errStopped)
		<-ready
		return errStopped
	}
}

// explain turns a failure into words for the function's owner; what is ours to mend
// goes to the log and says nothing to callers.
func (s *Set) explain(ctx context.Context, err error, f *nodeapi.Function) error {
	var p *problem.Problem
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, errStopped):
		return problem.New(http.StatusServiceUnavailable, "InstanceStopped", "", "the instance was stopped while it was starting")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return problem.New(http.StatusGatewayTimeout, "ReadyTimeout", fieldReadyTimeout,
			fmt.Sprintf("the function was not ready within %s; mend its start, or allow it more time", f.GetReadyTimeout().AsDuration()))
	}
	s.log.Error("an instance could not be started", "function", f.GetName(), "error", err)
	return problem.New(http.StatusBadGateway, "SandboxFailed", fieldContainer, "the node could not start the function's sandbox; the node's log says why")
}

func (s *Set) fail(in *instance, err error) {
	p := problem.Of(err)
	in.err = p
	close(in.settled)
	s.forget(in)
	s.report(&nodeapi.InstanceStatus{Id: in.id, Function: in.function, Phase: nodeapi.Phase_PHASE_FAILED,
		Reason: p.Title, Message: p.Detail, Field: p.Field})
}

// watch owns a ready instance until it ends by itself, is stopped, or the set closes.
func (s *Set) watch(in *instance, sb Sandbox) {
	status := &nodeapi.InstanceStatus{Id: in.id, Function: in.function, Phase: nodeapi.Phase_PHASE_STOPPED}
	select {
	case <-s.ctx.Done():
		close(in.gone)
		return
	case grace := <-in.stop:
		s.remove(sb, grace)
	case <-sb.Exited():
		status.Reason, status.Field = "FunctionExited", fieldContainer
		status.Message = fmt.Sprintf("the function's program ended by itself with code %d", sb.ExitCode())
		s.remove(sb, 0)
	}
	s.forget(in)
	s.report(status)
}

func (s *Set) remove(sb Sandbox, grace time.Duration) {
	if grace == 0 {
		grace = removeGrace
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), grace+removeTimeout)
	defer cancel()
	if err := sb.Remove(ctx, grace); err != nil {
		s.log.Error("a sandbox could not be removed", "instance", sb.ID(), "error", err)
	}
}

func (s *Set) forget(in *instance) {
	s.mu.Lock()
	delete(s.instances, in.id)
	inputs := in.inputs
	in.inputs = nil
	s.mu.Unlock()
	if inputs != nil {
		_ = inputs.Close()
	}
	if err := os.RemoveAll(filepath.Join(s.dir, in.id)); err != nil {
		s.log.Error("an instance's directory could not be removed", "instance", in.id, "error", err)
	}
	close(in.gone)
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, problem.Of(err).Title)
	}
	span.End()
}
