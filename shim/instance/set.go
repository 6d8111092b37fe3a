package instance

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const (
	// stopGrace is what a program gets between the signal to end and the kill when
	// nobody said otherwise; the kubelet's default of 30 s would hold up a shutdown.
	stopGrace = 2 * time.Second
	// announceTimeout is how long a request may be ahead of the news of its instance: a
	// few round trips between nodes and control plane.
	announceTimeout = 2 * time.Second
	// goneMemory is how long a request may be behind the end of its instance, and is
	// still told why it ended: the dial to this node alone may take 5 s.
	goneMemory = 10 * time.Second
)

// Set holds the node's instances. Its zero value is not usable; see Open.
type Set struct {
	runtime Runtime
	dir     dir
	sockets Sockets // nil: instances have none
	jobs    Jobs
	// report tells the control plane of a change; it must not block.
	report func(*nodeapi.InstanceStatus)
	log    *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	instances map[string]*instance
	gone      map[string]departure // by id, for goneMemory
	announced chan struct{}        // closed and replaced when an instance is added
}

type instance struct {
	id, function string
	port         int32
	job          bool // it runs once and takes no requests
	// life ends with a stopRequest, or with the set, which the program survives.
	life context.Context
	stop context.CancelCauseFunc

	// Guarded by the set's mu.
	traceparent string       // the shim's parent
	inputs      *staging.Dir // where the sandbox sees its inputs
	socket      bool         // it has one
	unstaged    error        // why a job has no input
	words       []string     // the runtime's, of a sandbox that could not be made; its life's only

	settled chan struct{} // closed when ready or failed
	// Written before settled is closed.
	address netip.AddrPort
	err     error
}

type departure struct {
	at  time.Time
	why *problem.Problem
}

// Open returns the set of instances below path, an absolute one that it makes, with
// those that run already. memory is for inputs in memory, nil for none; sockets may be nil.
// report may be called before Open returns.
func Open(ctx context.Context, runtime Runtime, path string, memory *staging.Memory, sockets Sockets, jobs Jobs, report func(*nodeapi.InstanceStatus), log *slog.Logger) (*Set, error) {
	d, err := openDir(path, memory)
	if err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Set{runtime: runtime, dir: d, sockets: sockets, jobs: jobs, report: report, log: log, ctx: life, cancel: cancel,
		instances: map[string]*instance{}, gone: map[string]departure{}, announced: make(chan struct{})}
	if err := s.adopt(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// adopt takes over what was ready before a restart, which counts as ready without
// another probe, and removes the rest.
func (s *Set) adopt(ctx context.Context) error {
	running, err := s.runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing the sandboxes that run: %w", err)
	}
	adopted := map[*instance]Sandbox{}
	for _, sb := range running {
		inputs, m, err := s.dir.takeOver(sb.ID())
		if err != nil {
			s.log.Warn("a sandbox of an earlier run is removed", "instance", sb.ID(), "error", err)
			s.remove(sb, 0)
			continue
		}
		in := s.add(sb.ID(), sb.Function(), m.Port)
		in.job = m.Job
		in.inputs, in.address = inputs, netip.AddrPortFrom(sb.Address(), uint16(m.Port))
		close(in.settled)
		in.socket = s.openSocket(in)
		adopted[in] = sb
	}
	if err := s.dir.sweep(s.instances); err != nil {
		return err
	}
	// Last: they report, and change the map.
	for in, sb := range adopted {
		s.wg.Go(func() { s.watch(in, sb) })
	}
	return nil
}

// add makes an instance known; the caller holds mu, or the set alone.
func (s *Set) add(id, function string, port int32) *instance {
	life, stop := context.WithCancelCause(s.ctx)
	in := &instance{id: id, function: function, port: port, life: life, stop: stop, settled: make(chan struct{})}
	s.instances[id] = in
	delete(s.gone, id)
	close(s.announced)
	s.announced = make(chan struct{})
	return in
}

// Start makes an instance in the background. A second call with the same id is
// ignored: the control plane repeats itself after a reconnect.
func (s *Set) Start(m *nodeapi.StartInstance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.instances[m.GetId()]; known || s.ctx.Err() != nil {
		return
	}
	f := m.GetFunction()
	in := s.add(m.GetId(), f.GetName(), f.GetPort())
	in.job = m.GetJob() != nil
	s.wg.Go(func() { s.run(in, m) })
}

// Stop ends an instance: grace after the signal to end comes the kill. Without a grace
// it gets two seconds. An unknown instance is gone already.
func (s *Set) Stop(id string, grace time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in, ok := s.instances[id]; ok {
		if grace <= 0 {
			grace = stopGrace
		}
		in.stop(stopRequest{grace}) // the first one counts
	}
}

// Ready waits until the instance takes requests and returns its address, or the
// *problem.Problem that keeps it from that, as a problem.TooLate if it did before.
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
		left, gone := s.gone[id]
		announced := s.announced
		s.mu.Unlock()
		switch {
		case ok:
			return in, nil
		case gone:
			return nil, problem.TooLate{Problem: left.why}
		}
		select {
		case <-announced:
		case <-late.C:
			return nil, problem.InstanceGone()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Inputs is where the instance's sandbox sees its inputs, or nil when the instance is gone.
func (s *Set) Inputs(id string) *staging.Dir {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in, ok := s.instances[id]; ok {
		return in.inputs
	}
	return nil
}

// Statuses returns what starts and what is ready, for a registration.
func (s *Set) Statuses() []*nodeapi.InstanceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*nodeapi.InstanceStatus
	for _, in := range s.instances {
		st := in.status(nodeapi.Phase_PHASE_STARTING)
		select {
		case <-in.settled:
			if in.err != nil {
				continue
			}
			st = in.status(nodeapi.Phase_PHASE_READY)
		default:
		}
		all = append(all, st)
	}
	return all
}

func (in *instance) status(p nodeapi.Phase) *nodeapi.InstanceStatus {
	st := &nodeapi.InstanceStatus{Id: in.id, Function: in.function, Phase: p}
	if p == nodeapi.Phase_PHASE_READY && !in.job {
		st.Address = in.address.String()
	}
	return st
}

// Describe answers a shim: what belongs in the sandbox.
func (s *Set) Describe(id, otlpTarget string) (*nodeapi.DescribeResponse, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, ok := s.instances[id]
	if !ok || in.inputs == nil {
		return nil, false
	}
	d := &nodeapi.DescribeResponse{
		Mounts:      s.dir.mounts(id),
		Env:         map[string]string{"HEADSTART_INPUT_DIR": staging.Mount, "HEADSTART_INSTANCE": in.id},
		Traceparent: in.traceparent,
		OtlpTarget:  otlpTarget,
	}
	if in.job {
		d.Env["HEADSTART_INPUT"] = job.Path
	}
	if in.socket {
		DescribeSocket(d, s.dir.socketPath(id))
	}
	return d, true
}

// Close ends the set's watch over its instances and waits for it. Those that are ready
// go on: a daemon's restart stops no function. Those that are starting are removed,
// and those that are being stopped are killed.
func (s *Set) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.instances {
		_ = in.inputs.Close() // it was only read from
	}
	_ = s.dir.root.Close()
}
