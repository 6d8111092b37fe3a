package pods

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/readiness"
)

var tracer = otel.Tracer("github.com/headstart-mesh/headstart/shim/pods")

// pod is one instance. The set's mu guards it.
type pod struct {
	id, function string
	at           ingress.Endpoint
	phase        nodeapi.Phase
	probed       bool  // this node found it ready
	failure      error // a *problem.Problem, for those who wait
	changed      chan struct{}

	waiters int
	probing *probing // nil: no probe runs

	// For the spans of a cold start: when each part of it was first seen, and the request
	// that waited first.
	began, made, waited time.Time
	request             trace.SpanContext
	told                bool
}

// probing is one run of probes.
type probing struct{ stop context.CancelFunc }

func newPod(s *nodeapi.InstanceStatus) *pod {
	return &pod{id: s.GetId(), function: s.GetFunction(), changed: make(chan struct{}), began: time.Now()}
}

// settled tells whether the pod takes requests.
func (p *pod) settled() bool {
	return p.at.Address.IsValid() && (p.probed || p.phase == nodeapi.Phase_PHASE_READY)
}

// update takes over what the control plane says. A pod that is not ready any more, or is
// somewhere else, has to be found ready anew.
func (p *pod) update(s *nodeapi.InstanceStatus) {
	at := ingress.Endpoint{Address: address(s.GetAddress()), MeshSNI: s.GetMeshSni()}
	fell := p.phase == nodeapi.Phase_PHASE_READY && s.GetPhase() != nodeapi.Phase_PHASE_READY
	if at != p.at || fell {
		p.probed = false
		p.stopProbing()
	}
	if at.Address.IsValid() && p.made.IsZero() {
		p.made = time.Now()
	}
	p.at, p.phase, p.failure = at, s.GetPhase(), nil
	if s.GetPhase() == nodeapi.Phase_PHASE_FAILED {
		p.probed, p.failure = false, failed(s)
	}
	p.notify()
}

// failed is the control plane's word for those who wait.
func failed(s *nodeapi.InstanceStatus) *problem.Problem {
	status := http.StatusBadGateway
	if s.GetReason() == reasonReadyTimeout {
		status = http.StatusGatewayTimeout
	}
	return problem.New(status, cmp.Or(s.GetReason(), reasonFailed), s.GetField(),
		cmp.Or(s.GetMessage(), "the function's pod could not be started"))
}

// Reasons of a failure; all others are the control plane's to choose.
const (
	reasonReadyTimeout = "ReadyTimeout"
	reasonFailed       = "SandboxFailed"
)

func (p *pod) fail(why *problem.Problem) {
	p.failure = why
	p.stopProbing()
	p.notify()
}

// notify wakes those who wait, and tells the spans of a cold start that is over.
func (p *pod) notify() {
	if p.settled() {
		p.tell()
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pod) stopProbing() {
	if p.probing != nil {
		p.probing.stop()
		p.probing = nil
	}
}

// wait counts one more request that waits for the pod.
func (s *Set) wait(ctx context.Context, p *pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.waiters++
	if p.waited.IsZero() && !p.settled() {
		p.waited, p.request = time.Now(), trace.SpanContextFromContext(ctx)
	}
	s.probe(p)
}

func (s *Set) leave(p *pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.waiters--; p.waiters == 0 {
		p.stopProbing()
	}
}

// probe finds out whether the pod is ready, while requests wait for it and nobody else
// has to say so: the kubelet looks once a second at best. Where only the platform can
// tell, or a sidecar takes connections before the function does, it is left to the
// platform. The caller holds mu.
func (s *Set) probe(p *pod) {
	f := s.config.Functions(p.function)
	if p.probing != nil || p.waiters == 0 || p.settled() || p.failure != nil || !p.at.Address.IsValid() ||
		f == nil || f.GetPlatformReadiness() || p.at.MeshSNI != "" || s.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(s.ctx)
	mine := &probing{stop: stop}
	p.probing = mine
	at, path := p.at.Address, f.GetProbePath()
	s.probes.Go(func() {
		defer stop()
		if readiness.Await(ctx, at, path) == nil {
			s.found(p, mine)
		}
	})
}

// found notes that a probe was answered, if it still counts.
func (s *Set) found(p *pod, by *probing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.probing != by {
		return
	}
	p.probing, p.probed = nil, true
	s.config.Log.Info("instance is ready", "instance", p.id, "function", p.function, "address", p.at.Address.String())
	p.notify()
}

// tell tells the spans of the cold start that the first request waited for.
func (p *pod) tell() {
	if p.told || p.waited.IsZero() {
		return
	}
	p.told = true
	begin := latest(p.began, p.waited)
	made := latest(p.made, begin)
	ctx := trace.ContextWithSpanContext(context.Background(), p.request)
	about := trace.WithAttributes(tracing.Function.String(p.function), tracing.Instance.String(p.id))
	_, create := tracer.Start(ctx, tracing.SandboxCreate, trace.WithTimestamp(begin), about)
	create.End(trace.WithTimestamp(made))
	_, start := tracer.Start(ctx, tracing.RuntimeStart, trace.WithTimestamp(made), about)
	start.End()
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
