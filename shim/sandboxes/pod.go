package sandboxes

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/netip"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/readiness"
)

// pod is one instance that Kubernetes runs. The set's mu guards it.
type pod struct {
	*instance
	phase  nodeapi.Phase
	probed bool // this node found it ready

	// gate is how its sandbox is to be closed, nil for that of another function.
	gate *nodeapi.Gate
	// toldOpen: its owner has heard why that is not.
	toldOpen bool
	// held is the container that is to be made again before the pod takes requests; empty: none.
	held string
	// said is the phase that the control plane has said last.
	said nodeapi.Phase
	// renewed: what the control plane says of its readiness is about a program that is gone, until it says that the pod is not ready.
	renewed bool

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

// newPod makes a pod known; the caller holds mu.
func (k *Kubelet) newPod(s *nodeapi.InstanceStatus) *pod {
	p := &pod{instance: k.add(s.GetId(), s.GetFunction()), began: time.Now(), held: k.gated[s.GetId()]}
	p.renewed = p.held != ""
	if e, ok := k.expected[s.GetId()]; ok {
		p.waited, p.request = e.at, e.request
		delete(k.expected, s.GetId())
	}
	return p
}

// expectation is a request that a pod starts for.
type expectation struct {
	request trace.SpanContext
	at      time.Time
}

// Expect takes the control plane's word that a request is on its way to a pod. The spans of the pod's
// start are the request's. The word may be here before the pod is known, and the sandbox be made
// before the request is here.
func (k *Kubelet) Expect(m *nodeapi.Expect) {
	ctx := tracing.Continue(context.Background(), m.GetTraceparent())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expect(m.GetInstance(), trace.SpanContextFromContext(ctx))
}

// expect notes the first request that a pod starts for; the caller holds mu.
func (k *Kubelet) expect(id string, request trace.SpanContext) {
	now := time.Now()
	if p := k.pods[id]; p != nil {
		if p.waited.IsZero() && !p.ready {
			p.waited, p.request = now, request
		}
		return
	}
	maps.DeleteFunc(k.expected, func(_ string, e expectation) bool { return now.Sub(e.at) > expectedFor })
	if _, before := k.expected[id]; !before && len(k.expected) < expectedMost {
		k.expected[id] = expectation{request, now}
	}
}

// update takes over what the control plane says. A pod that is not ready any more, or is
// somewhere else, has to be found ready again.
func (p *pod) update(s *nodeapi.InstanceStatus) {
	at := Endpoint{Address: address(s.GetAddress()), MeshSNI: s.GetMeshSni()}
	p.gate = s.GetGate()
	phase := s.GetPhase()
	p.said = phase
	switch {
	case phase != nodeapi.Phase_PHASE_READY:
		p.renewed = false
	case p.renewed:
		phase = nodeapi.Phase_PHASE_STARTING
	}
	fell := p.phase == nodeapi.Phase_PHASE_READY && phase != nodeapi.Phase_PHASE_READY
	if at != p.at || fell {
		p.probed = false
		p.stopProbing()
	}
	if at.Address.IsValid() && p.made.IsZero() {
		p.made = time.Now()
	}
	p.at, p.phase, p.failure = at, phase, nil
	if phase == nodeapi.Phase_PHASE_FAILED {
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
	return problem.New(status, problem.Reason(cmp.Or(s.GetReason(), reasonSandboxFailed)), s.GetField(),
		cmp.Or(s.GetMessage(), "the function's pod could not be started"))
}

func (p *pod) fail(why *problem.Problem) {
	p.failure = why
	p.stopProbing()
	p.notify()
}

// notify wakes those who wait, and tells the spans of a cold start that is over.
func (p *pod) notify() {
	p.ready = p.at.Address.IsValid() && p.held == "" && (p.probed || p.phase == nodeapi.Phase_PHASE_READY)
	if p.ready {
		p.tell()
	}
	p.changed.Tell()
}

func (p *pod) stopProbing() {
	if p.probing != nil {
		p.probing.stop()
		p.probing = nil
	}
}

// awaited counts one more request that waits for the pod.
func (k *Kubelet) awaited(ctx context.Context, id string) (done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expect(id, trace.SpanContextFromContext(ctx))
	p := k.pods[id]
	if p == nil {
		return func() {}
	}
	p.waiters++
	k.probe(p)
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if p.waiters--; p.waiters == 0 {
			p.stopProbing()
		}
	}
}

// probe finds out whether the pod is ready, while requests wait for it and nobody else
// has to say so: the kubelet looks once a second at best. Where only the platform can
// tell, or a sidecar takes connections before the function does, it is left to the
// platform. The caller holds mu.
func (k *Kubelet) probe(p *pod) {
	f := k.functions(p.function)
	if p.probing != nil || p.waiters == 0 || p.ready || p.held != "" || p.failure != nil || !p.at.Address.IsValid() ||
		f == nil || f.GetPlatformReadiness() || p.at.MeshSNI != "" || k.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(k.ctx)
	mine := &probing{stop: stop}
	p.probing = mine
	at, path := p.at.Address, f.GetProbePath()
	k.wg.Go(func() {
		defer stop()
		if readiness.Await(ctx, at, path) == nil {
			k.found(p, mine)
		}
	})
}

// found notes that a probe was answered, if it still counts.
func (k *Kubelet) found(p *pod, by *probing) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p.probing != by {
		return
	}
	p.probing, p.probed = nil, true
	k.config.Log.Info("instance is ready", "instance", p.id, "function", p.function, "address", p.at.Address.String())
	p.notify()
	k.serve(p.instance)
}

// entered notes that a pod's first container is being made. It returns the traceparent of the
// request that waits for the pod, if one does, and whether the control plane knows it as a job.
func (k *Kubelet) entered(id string) (traceparent string, job bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	job = k.jobs[id] != nil
	request := k.expected[id].request
	if p := k.pods[id]; p != nil {
		request = p.request
		if p.made.IsZero() {
			p.made = time.Now() // its sandbox is
		}
	}
	return tracing.Traceparent(trace.ContextWithSpanContext(context.Background(), request)), job
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

// address reads an address that the control plane has sent, invalid when there is none.
func address(s string) netip.AddrPort {
	at, err := netip.ParseAddrPort(s)
	if err != nil || at.Port() == 0 || at.Addr().IsUnspecified() {
		return netip.AddrPort{}
	}
	return at
}
