// Package runtime is what containerd runs sandboxes of Headstart by: the task service of its runc
// shim, with one question to the node's daemon before `runc create`, what belongs in this sandbox?
// No answer keeps a sandbox from starting, but for that of a job, and of a pod with volumes: its program is not to
// start before they are there.
package runtime

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/log"
	"github.com/containerd/ttrpc"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/streams"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/runtime/gate"
	"github.com/headstart-mesh/headstart/shim/runtime/notify"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

// Service wraps another task service, runc's in production. All calls are passed on;
// Create prepares the bundle first, Create and Start become spans.
type Service struct {
	taskAPI.TTRPCTaskService
	node    Node
	version string

	mu     sync.Mutex
	traces map[string]*trace     // of sandboxes created and not yet started
	pods   map[string]*container // those that the daemon is to be told the end of
	jobs   map[string]*waiting   // of those that wait for an input, or for volumes
	files  map[string][]*os.File // what a container inherits that is being created
	served map[string]*endpoint  // by the sandbox and the endpoint's name
	// conversations are by the sandbox.
	conversations map[string]*conversation
	// listeners are of containers whose connections the daemon is asked about.
	listeners map[string]*notify.Listener
	home      string     // the bundle of the pod's first container
	ending    sync.Mutex // held while endpoints end; taken after mu

	// listens is endpoints.Listen, which takes root.
	listens func(ctx context.Context, namespace string) (*net.TCPListener, error)
	// closes is gate.Close, which takes root.
	closes func(namespace string, r gate.Rules) error
	// opens is gate.Open, which takes root.
	opens func(namespace string) error
	// gating guards what follows, and is held while rules change: closings are by the sandbox.
	gating   sync.Mutex
	closings map[string]closing
	// toClose are those that are closed when their programs start, by their containers.
	toClose map[string]closing
	// dials is streams.In, which takes root.
	dials func(namespace string) streams.Dial

	starts chan func() // what the thread for processes does
	closed chan struct{}
	close  func()

	background sync.WaitGroup // what the daemon and the collector are told, and the thread for processes
}

// container is one of a pod.
type container struct {
	pod *nodeapi.Pod
	// routed: gateways may send requests to it, and nobody has asked it to end.
	routed bool
}

// withdrawal is how long a function's program does not hear that it is to end: Kubernetes tells
// gateways and the kubelet at the same moment, and a program that takes no more connections
// before the gateways know loses their requests. Gateways know within a tenth of that, or some
// tenths on a busy machine. Pods have 30 s to end by default.
const withdrawal = time.Second

// New returns a service over inner that asks the daemon of a node. version is the shim's own, for its
// spans. The caller has to Close it.
func New(inner taskAPI.TTRPCTaskService, at Node, version string) *Service {
	closed := make(chan struct{})
	return &Service{TTRPCTaskService: inner, node: at, version: version,
		traces: make(map[string]*trace), pods: make(map[string]*container), jobs: make(map[string]*waiting),
		files: make(map[string][]*os.File), served: make(map[string]*endpoint), listens: endpoints.Listen, closes: gate.Close, opens: gate.Open,
		conversations: make(map[string]*conversation), listeners: make(map[string]*notify.Listener), dials: streams.In,
		closings: make(map[string]closing), toClose: make(map[string]closing),
		starts: make(chan func()), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// RegisterTTRPC serves the task API as containerd 2 and as containerd 1 call it.
func (s *Service) RegisterTTRPC(server *ttrpc.Server) error {
	taskAPI.RegisterTTRPCTaskService(server, s)
	registerV2(server, s)
	return nil
}

// Create puts what belongs in the sandbox into its bundle, and has it created. If that
// cannot be done the sandbox starts unchanged; the shim's log and the span say so. A job's
// does not start then: its program would find no input.
func (s *Service) Create(ctx context.Context, r *taskAPI.CreateTaskRequest) (*taskAPI.CreateTaskResponse, error) {
	arrived := time.Now()
	b, unreadable := openBundle(r.Bundle)
	if unreadable != nil {
		b = &bundle{}
	} else {
		defer b.Close()
		defer func() {
			if err := Unpin(s.node.Binds, r.Bundle); err != nil {
				log.G(ctx).WithError(err).WithField("sandbox", r.ID).Warn("what runc has mounted stays in the bundle, too")
			}
		}()
	}
	if err := setOptions(r, b.facts.SystemdCgroup); err != nil {
		return nil, errgrpc.ToGRPC(fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err))
	}
	var description *nodeapi.DescribeResponse
	missed := &lapse{bundleUnreadable, unreadable}
	if unreadable == nil {
		description, missed = s.prepare(ctx, r, b)
	}
	if what := b.facts.Demands(); what != "" && r.Checkpoint == "" {
		if err := without(ctx, what, r.ID, description, missed); err != nil {
			s.gone(r.ID)
			return nil, errgrpc.ToGRPC(err)
		}
	}
	if b.facts.AwaitsInput && r.Checkpoint == "" {
		s.expectInput(r.ID, b.facts.Pod)
	}
	t := newTrace(description, r.ID, s.version)
	span := t.start(tracing.RuncCreate, arrived)
	span.AddEvent("prepared")
	if missed != nil {
		s.unlisten(r.ID)
		log.G(ctx).WithError(missed.cause).WithField("sandbox", r.ID).WithField("reason", missed.reason).
			Warn("the sandbox starts without what Headstart has for it")
		span.SetAttributes(tracing.Degraded.String(missed.reason))
	}
	res, err := s.TTRPCTaskService.Create(ctx, r)
	if err != nil {
		var unasked *lapse
		res, unasked, err = s.createWithout(ctx, r, b, err)
		b.partial = cmp.Or(unasked, b.partial)
	}
	if b.partial != nil {
		span.SetAttributes(tracing.Degraded.String(b.partial.reason))
	}
	s.disinherit(r.ID)
	end(span, err)
	if err != nil {
		s.export(t)
		s.forgetInput(r.ID)
		s.gone(r.ID)
		return nil, err
	}
	s.keep(r.ID, t)
	return res, nil
}

// setOptions gives runc's service its own options in place of those that containerd sent.
func setOptions(r *taskAPI.CreateTaskRequest, systemd bool) error {
	if len(r.GetOptions().GetValue()) == 0 && !systemd {
		return nil // as always, outside Kubernetes
	}
	o, err := RuncOptions(r.GetOptions(), systemd)
	if err != nil {
		return err
	}
	r.Options, err = typeurl.MarshalAnyToProto(o)
	return err
}

// prepare returns what the daemon described, nil for nothing, and why it is not in the
// bundle, nil if it is.
func (s *Service) prepare(ctx context.Context, r *taskAPI.CreateTaskRequest, b *bundle) (
	*nodeapi.DescribeResponse, *lapse,
) {
	// A restored process has the mounts and the environment of its checkpoint; CRIU
	// refuses others.
	if r.Checkpoint != "" || b.facts.Pause {
		s.settle(b)
		return nil, nil
	}
	description, missed := s.node.describe(ctx, r.ID, b.facts)
	if description == nil {
		s.openFor(r.ID, b)
	}
	if description == nil && missed == nil {
		log.G(ctx).WithField("sandbox", r.ID).Debug("the daemon has nothing for this sandbox")
		return nil, nil
	}
	// Also of one whose answer was too late: the daemon may have made something for it.
	s.expectEnd(r.ID, b.facts)
	if missed != nil {
		return nil, missed
	}
	if b.facts.Volumes != nil {
		mounts, missed := s.awaitVolumes(ctx, r.ID, b.facts)
		if missed != nil {
			return description, missed
		}
		description.Mounts = append(description.Mounts, mounts...)
	}
	has, missed := s.listen(ctx, r.ID, b, description)
	if missed != nil {
		return description, missed
	}
	files, lost := s.node.fetch(ctx, r.ID, description)
	if missed := b.apply(s.node, r.ID, description, has); missed != nil {
		descriptors.CloseAll(files)
		return description, missed
	}
	s.bequeath(r.ID, files)
	s.closeNetwork(ctx, r.ID, b, description)
	b.partial = cmp.Or(s.notify(ctx, r.ID, b, description, s.converse(r.ID, b, description)), lost)
	return description, nil
}

// Start starts the sandbox or, with an ExecID, a further process in it, which is
// nothing of ours. A job's waits for its input.
func (s *Service) Start(ctx context.Context, r *taskAPI.StartRequest) (*taskAPI.StartResponse, error) {
	if r.ExecID != "" {
		return s.TTRPCTaskService.Start(ctx, r)
	}
	t := s.take(r.ID)
	if err := s.awaitInput(ctx, r.ID); err != nil {
		s.export(t)
		return nil, err
	}
	s.closeAtStart(ctx, r.ID)
	span := t.start(tracing.RuncStart, time.Now())
	res, err := s.TTRPCTaskService.Start(ctx, r)
	end(span, err)
	s.export(t)
	return res, err
}

// Delete also ends the trace of a sandbox that was never started, and tells the daemon of
// the end of a pod's container.
func (s *Service) Delete(ctx context.Context, r *taskAPI.DeleteRequest) (*taskAPI.DeleteResponse, error) {
	if r.ExecID != "" {
		return s.TTRPCTaskService.Delete(ctx, r)
	}
	s.forgetInput(r.ID)
	s.export(s.take(r.ID))
	res, err := s.TTRPCTaskService.Delete(ctx, r)
	if err == nil {
		s.gone(r.ID)
	}
	return res, err
}

// Kill also ends the wait for a job's input: whoever kills what has not started waits for
// the start's end. The first signal to a function's program, but for SIGKILL, is held back until
// gateways have taken the instance out.
func (s *Service) Kill(ctx context.Context, r *taskAPI.KillRequest) (*emptypb.Empty, error) {
	if r.ExecID == "" {
		s.endWait(r.ID)
		if s.withdraw(r.ID) && syscall.Signal(r.Signal) != syscall.SIGKILL {
			select {
			case <-time.After(withdrawal):
			case <-ctx.Done():
			}
		}
	}
	return s.TTRPCTaskService.Kill(ctx, r)
}

// withdraw says whether the container may still get requests; it says so once.
func (s *Service) withdraw(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.pods[id]
	if c == nil || !c.routed {
		return false
	}
	c.routed = false
	return true
}

// Close waits until spans and ends of sandboxes are told or given up: exportTimeout at the
// longest. No call may follow.
func (s *Service) Close(context.Context) error {
	s.mu.Lock()
	for _, e := range s.served {
		e.end()
	}
	for _, c := range s.conversations {
		c.stop()
	}
	listeners := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	for _, id := range listeners {
		s.unnotify(id)
	}
	s.close()
	s.background.Wait()
	return nil
}

// expectEnd notes that the daemon is to be told when the container ends. The sandboxes of
// its own, which are of no pod, it knows better.
func (s *Service) expectEnd(id string, of spec.Facts) {
	if of.Pod == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[id] = &container{pod: of.Pod, routed: !of.Job}
}

// gone tells the daemon of a container's end while the caller goes on. A daemon that is
// away learns it from the control plane, by the pod's end.
func (s *Service) gone(id string) {
	s.unnotify(id)
	s.leaveClosing(id)
	s.mu.Lock()
	end := s.leaveEndpoints(id)
	s.leaveConversation(id)
	c, told := s.pods[id]
	delete(s.pods, id)
	s.mu.Unlock()
	end()
	if !told {
		return
	}
	s.background.Go(func() {
		if err := s.node.gone(id, c.pod); err != nil {
			log.L.WithError(err).WithField("sandbox", id).Debug("the daemon was not told of a container's end")
		}
	})
}

func (s *Service) keep(id string, t *trace) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traces[id] = t
}

func (s *Service) take(id string) *trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.traces[id]
	delete(s.traces, id)
	return t
}

// export sends t's spans while the caller goes on.
func (s *Service) export(t *trace) {
	if t == nil {
		return
	}
	s.background.Go(func() {
		if err := t.export(); err != nil {
			log.L.WithError(err).WithField("sandbox", t.id).Warn("the sandbox's spans are lost")
		}
	})
}
