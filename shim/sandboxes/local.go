package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// stopGrace is what a program gets between the signal to end and the kill when nobody said
// otherwise; the kubelet's default of 30 s would hold up a shutdown.
const stopGrace = 2 * time.Second

// removalsAtOnce are few, as each has removeTimeout.
const removalsAtOnce = 4

// metaName is a file with the meta of a sandbox that was ready.
const metaName = "meta.json"

// endedName is a file with how a job ended, an InstanceStatus in JSON, until nothing else is left of the job.
const endedName = "ended.json"

// meta is what a restarted daemon must know of a sandbox beyond what its container says. It is
// written once the sandbox is ready, so without one it never was.
type meta struct {
	Port int32 `json:"port"`
	// Job: it takes no requests, and keeps its input over a restart.
	Job bool `json:"job,omitempty"`
	// Closed: nothing leaves it but answers.
	Closed bool `json:"closed,omitempty"`
}

// Local has the sandboxes that the node itself runs, as the control plane orders.
type Local struct {
	*Set
	containers Containers
	// report tells the control plane of a change; it must not block. heard ends when nobody hears it any more.
	report func(*nodeapi.InstanceStatus)
	heard  context.Context

	runs map[string]*run // by id, guarded by the set's mu
	// ending are jobs of which nothing is left, until their end is told: a control plane takes a job for lost that a
	// registration does not list.
	ending map[string]*run
}

// run is the life of one sandbox.
type run struct {
	*instance
	port int32
	// life ends with a stopRequest, or with the set, which the program survives.
	life context.Context
	stop context.CancelCauseFunc

	// Guarded by the set's mu.
	traceparent string // the shim's parent
	needs       *needs // nil: nothing was made for it

	words []string // the node's, of a sandbox that could not be made; its life's only
}

// closed notes nothing: what a later daemon has to know is noted when the sandbox is ready.
func (l *Local) closed(*instance, string) {}

// OpenLocal returns the set with the sandboxes that run already. report may be called before
// OpenLocal returns, and nobody hears it any more when ctx has ended. The caller has to Close the set.
func OpenLocal(
	ctx context.Context, c Config, containers Containers, report func(*nodeapi.InstanceStatus),
) (*Local, error) {
	s, err := open(c)
	if err != nil {
		return nil, err
	}
	l := &Local{Set: s, containers: containers, report: report, heard: ctx, runs: map[string]*run{}, ending: map[string]*run{}}
	s.runtime = l
	if err := l.adopt(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// adopt takes over what was ready before a restart, which counts as ready without
// another probe, and removes the rest.
func (l *Local) adopt(ctx context.Context) error {
	started, err := l.containers.List(ctx)
	if err != nil {
		return fmt.Errorf("listing the sandboxes of before: %w", err)
	}
	ended, err := l.ended()
	if err != nil {
		return err
	}
	adopted := map[*run]Container{}
	var removals errgroup.Group // side by side: requests wait for those that stay
	removals.SetLimit(removalsAtOnce)
	remove := func(c Container) { removals.Go(func() error { l.remove(c, 0); return nil }) }
	for _, c := range started {
		if ended[c.ID()] != nil {
			remove(c)
			continue
		}
		in, err := l.takeOver(c)
		if err != nil {
			l.config.Log.Warn("a sandbox of an earlier run is removed", "instance", c.ID(), "error", err)
			remove(c)
			continue
		}
		adopted[in] = c
	}
	_ = removals.Wait() // they log what fails
	if err := l.tree.sweep(func(dir string, _ bool, _ time.Time) bool { return l.instances[dir] != nil }); err != nil {
		return err
	}
	if l.config.Volumes != nil {
		l.config.Volumes.Sweep(l.tree.has)
	}
	for _, status := range ended {
		l.report(status)
	}
	// Last: they report, and change the map.
	for in, c := range adopted {
		l.wg.Go(func() { l.watch(in, c) })
	}
	return nil
}

// takeOver makes a sandbox known that was ready, without the inputs of requests: they ended with
// the daemon that had them.
func (l *Local) takeOver(c Container) (*run, error) {
	m, err := l.readMeta(c.ID())
	if err != nil {
		return nil, err
	}
	if !m.Job && isClosed(c.Exited()) {
		return nil, errors.New("its program ended while no daemon was there")
	}
	if m.Closed {
		return nil, errors.New("its program may be at work on a request before its turn, of which nobody knows any more")
	}
	inputs, err := l.tree.inputs(c.ID())
	if err != nil {
		return nil, err
	}
	if err := inputs.Clear(JobInput); err != nil {
		return nil, err
	}
	n, err := l.bring(sandboxOf(c.ID(), c.Function(), m.Job, true))
	if err != nil {
		return nil, err
	}
	in := l.addRun(c.ID(), c.Function(), m.Port, m.Job)
	in.needs = n
	in.at.Address, in.ready = netip.AddrPortFrom(c.Address(), uint16(m.Port)), true
	l.serve(in.instance)
	return in, nil
}

// ended are the jobs whose end an earlier daemon had no time to tell, by their ids.
func (l *Local) ended() (map[string]*nodeapi.InstanceStatus, error) {
	all, err := l.tree.list()
	if err != nil {
		return nil, err
	}
	ended := map[string]*nodeapi.InstanceStatus{}
	for _, dir := range all {
		b, err := l.tree.read(dir.Name(), endedName)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var s nodeapi.InstanceStatus
		if err == nil { // a later version's may have more in it
			err = protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, &s)
		}
		if err != nil {
			l.config.Log.Warn("how a job ended cannot be read", "instance", dir.Name(), "error", err)
			continue
		}
		ended[s.GetId()] = &s
	}
	return ended, nil
}

// noteEnd notes how a job ended. Of one that never had a directory there is nothing that could outlive the daemon.
func (l *Local) noteEnd(id string, ended *nodeapi.InstanceStatus) {
	b, err := protojson.Marshal(ended)
	if err == nil {
		err = l.tree.write(id, endedName, b)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.config.Log.Warn("how a job ended will not survive the daemon's restart", "instance", id, "error", err)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (l *Local) readMeta(id string) (m meta, err error) {
	b, err := l.tree.read(id, metaName)
	if errors.Is(err, fs.ErrNotExist) {
		return m, errors.New("the sandbox was never ready")
	}
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err == nil && !m.Job {
		err = checkPort(m.Port)
	}
	if err != nil {
		return m, fmt.Errorf("reading what a sandbox listens on: %w", err)
	}
	return m, nil
}

func (l *Local) writeMeta(in *run) error {
	b, err := json.Marshal(meta{Port: in.port, Job: in.job, Closed: l.IsClosed(in.id)})
	if err == nil {
		err = l.tree.write(in.id, metaName, b)
	}
	return err
}

func checkPort(port int32) error {
	if port < 1 || port > 65535 {
		return fmt.Errorf("port %d is none", port)
	}
	return nil
}

// addRun makes a sandbox known; the caller holds mu, or the set alone.
func (l *Local) addRun(id, function string, port int32, job bool) *run {
	in := &run{instance: l.add(id, function), port: port}
	in.job = job
	in.life, in.stop = context.WithCancelCause(l.ctx)
	l.runs[id] = in
	return in
}

// sandboxOf is a function's, for providers.
func sandboxOf(id, function string, job, runs bool) Sandbox {
	namespace, _, _ := strings.Cut(function, "/")
	return Sandbox{ID: id, Namespace: namespace, Function: function, Job: job, runs: runs}
}

// Start makes a sandbox in the background. A second call with the same id is ignored: the
// control plane repeats itself after a reconnect.
func (l *Local) Start(m *nodeapi.StartInstance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[m.GetId()] != nil || l.ctx.Err() != nil {
		return
	}
	f := m.GetFunction()
	in := l.addRun(m.GetId(), f.GetName(), f.GetPort(), m.GetJob() != nil)
	l.wg.Go(func() { l.run(in, m) })
}

// Stop ends a sandbox: grace after the signal to end comes the kill. Without a grace it gets
// two seconds. An unknown sandbox is gone already.
func (l *Local) Stop(id string, grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in, ok := l.runs[id]; ok {
		if grace <= 0 {
			grace = stopGrace
		}
		in.stop(stopRequest{grace}) // the first one counts
	}
}

// replace ends it: the control plane makes another one when it needs it.
func (l *Local) replace(id string) { l.Stop(id, 0) }

// Statuses returns what starts and what is ready, for a registration.
func (l *Local) Statuses() []*nodeapi.InstanceStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*nodeapi.InstanceStatus
	for _, in := range l.runs {
		if in.failure == nil {
			all = append(all, in.last())
		}
	}
	for _, in := range l.ending {
		all = append(all, in.last())
	}
	return all
}

// last is the word that there is of a sandbox which has not ended.
func (in *run) last() *nodeapi.InstanceStatus {
	if in.ready {
		return in.status(nodeapi.Phase_PHASE_READY)
	}
	return in.status(nodeapi.Phase_PHASE_STARTING)
}

func (in *run) status(p nodeapi.Phase) *nodeapi.InstanceStatus {
	st := &nodeapi.InstanceStatus{Id: in.id, Function: in.function, Phase: p}
	if p == nodeapi.Phase_PHASE_READY && !in.job {
		st.Address = in.at.Address.String()
	}
	return st
}

// enter describes a sandbox that is being made. Each has one container, of its own id.
func (l *Local) enter(_ context.Context, r *nodeapi.DescribeRequest) (*needs, string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.runs[r.GetSandbox()]
	if in == nil || in.needs == nil {
		return nil, "", status.Error(codes.NotFound, "not an instance of this node's daemon")
	}
	return in.needs, in.traceparent, nil
}

// sandbox has nothing to adopt: the set knows all that it runs, and no other daemon has any.
func (l *Local) sandbox(id string) (Sandbox, error) {
	return Sandbox{}, fmt.Errorf("sandbox %.64q is not one of this node's daemon", id)
}

func (l *Local) starting(r *nodeapi.StageRequest) (*needs, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	in := l.runs[r.GetSandbox()]
	if in == nil || !in.job || in.needs == nil {
		return nil, status.Error(codes.NotFound, "not a job of this node's daemon")
	}
	return in.needs, nil
}

func (l *Local) making(r *nodeapi.MountsRequest) (*needs, string, error) {
	return l.enter(l.ctx, &nodeapi.DescribeRequest{Sandbox: r.GetSandbox()})
}

// left has nothing to let go of: the set knows the end of what it runs.
func (l *Local) left(*nodeapi.GoneRequest) error { return nil }

// awaited changes nothing: what starts is probed by itself.
func (l *Local) awaited(context.Context, string) (done func()) { return func() {} }
