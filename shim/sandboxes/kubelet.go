package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

const (
	// abandoned is the age from which a directory is removed that neither a pod of the set nor
	// a container has, while another daemon may be making it: as good as any that is longer
	// than two daemons are there. Without another one such a directory goes at once.
	abandoned = time.Hour
	// forgotten is that age while a container has the directory, for all that was heard: its
	// pod may run for long before its Service is annotated. It bounds what shims leave whose
	// last word found no daemon, which is an empty directory each.
	forgotten = 30 * 24 * time.Hour
	// sweepInterval is how often such directories are looked for.
	sweepInterval = 10 * time.Minute

	// expectedFor is how long a request is remembered whose pod is not known: what its control plane
	// has bound it to, the followed one sees within moments, or after the 15 s that a crash takes.
	expectedFor = 30 * time.Second
	// expectedMost is how many are, as many as a node holds requests.
	expectedMost = 1024

	// connectionsTimeout is how long the shim of a container with connections may be ahead of the control plane, which
	// knows of a pod when it is bound, and may be starting itself. Its container asks for them: to start without is worse than
	// to start late. answerTime is what is left of the shim's patience for the answer.
	connectionsTimeout = 10 * time.Second
	answerTime         = time.Second

	// jobName is an empty file of a pod that is a job, as its containers say.
	jobName = "job"
)

var errLate = errors.New("the control plane has not said which they are")

// Kubelet has the sandboxes that Kubernetes runs: its pods. The control plane says which there
// are, and the node finds out when they are ready.
type Kubelet struct {
	*Set
	functions func(name string) *nodeapi.Function

	// Guarded by the set's mu.
	known bool // the control plane has spoken
	pods  map[string]*pod
	jobs  map[string]*nodeapi.Job
	// volumes are the pods that have volumes.
	volumes map[string]bool
	// connections are what the pods' containers are to be connected to, and connected tells of more of them.
	connections map[string]*nodeapi.Connections
	connected   News
	// expected are the first requests of pods that are not known yet.
	expected map[string]expectation
	// gated are the containers whose programs an earlier daemon has had work before their turn, by pod: they are to be replaced.
	gated map[string]string
}

// OpenKubelet returns the set without pods, until Instances says which there are. functions
// returns a function by its name, nil if it is not known. The caller has to Close the set.
func OpenKubelet(c Config, functions func(name string) *nodeapi.Function) (*Kubelet, error) {
	s, err := open(c)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		Set: s, functions: functions, pods: map[string]*pod{}, jobs: map[string]*nodeapi.Job{},
		expected: map[string]expectation{}, gated: map[string]string{},
	}
	s.runtime = k
	if err := k.adopt(); err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// adopt brings the pods that run already what they need.
func (k *Kubelet) adopt() error {
	if !k.config.Succeeds {
		if err := k.tree.clear(); err != nil {
			return err
		}
	}
	all, err := k.tree.list()
	if err != nil {
		return err
	}
	for _, dir := range all {
		id, err := k.tree.idOf(dir.Name())
		if container := k.noted(id); err == nil && container != "" {
			k.gated[id] = container
			continue
		}
		if err == nil {
			err = k.again(id)
		}
		// An earlier version notes no id where it has no sockets.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			k.config.Log.Warn("a pod goes without what it had", "directory", dir.Name(), "error", err)
		}
	}
	k.adoptGated()
	return nil
}

// again brings a pod that runs what it needs.
func (k *Kubelet) again(id string) error {
	_, err := k.bring(k.podSandbox(id, k.SaysJob(id), true))
	return err
}

// podSandbox is a pod's, for providers.
func (k *Kubelet) podSandbox(id string, job, runs bool) Sandbox {
	k.mu.Lock()
	defer k.mu.Unlock()
	namespace, _, _ := strings.Cut(id, "_")
	sb := Sandbox{ID: id, Namespace: namespace, Job: job, runs: runs}
	if in := k.instances[id]; in != nil {
		sb.Function = in.function
	}
	return sb
}

// Instances replaces the pods that the node has.
func (k *Kubelet) Instances(m *nodeapi.Instances) {
	var open []*pod
	defer func() {
		for _, p := range open {
			k.notClosed(p.function, p.open)
		}
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	now := make(map[string]*pod, len(m.GetInstances()))
	for _, status := range m.GetInstances() {
		p := k.pods[status.GetId()]
		if p == nil {
			p = k.newPod(status)
		}
		now[status.GetId()] = p
		p.update(status)
		if k.isOpen(p) {
			open = append(open, p)
		}
		k.opened(p)
		k.serve(p.instance)
		k.probe(p)
	}
	jobs := k.setJobs(m.GetJobs())
	volumes := k.setVolumes(m.GetVolumes())
	k.connections = make(map[string]*nodeapi.Connections, len(m.GetConnections()))
	for _, c := range m.GetConnections() {
		k.connections[c.GetId()] = c
	}
	k.connected.Tell()
	before, beforeJobs, beforeVolumes := k.pods, k.jobs, k.volumes
	k.pods, k.jobs, k.volumes = now, jobs, volumes
	for id, p := range before {
		if now[id] == nil {
			p.fail(problem.InstanceGone())
			delete(k.instances, id)
			k.serve(p.instance)
			k.leave(id)
		}
	}
	for id := range beforeJobs {
		if jobs[id] == nil {
			k.config.Jobs.Release(id)
			k.leave(id)
		}
	}
	for id := range beforeVolumes {
		if !volumes[id] {
			k.leave(id) // its containers may have them still
		}
	}
	if first := !k.known; first {
		k.known = true
		k.sweep()
	}
}

// Caller is the function whose pod calls, empty if it is none's. A daemon that has just started has calls before the control
// plane's word on who makes them.
func (k *Kubelet) Caller(ctx context.Context, id string) string {
	k.awaitKnown(ctx, announceTimeout)
	return k.Function(id)
}

// awaitKnown waits until the control plane has said which pods there are, and tells whether it has.
func (k *Kubelet) awaitKnown(ctx context.Context, patience time.Duration) bool {
	known, err := Announced(ctx, patience, errLate, func() (known bool, changed <-chan struct{}, err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.known {
			return true, nil, nil
		}
		return false, k.connected.Next(), nil
	})
	return known && err == nil
}

// setJobs has the inputs of the jobs fetched that are new, and returns all by id; the caller
// holds mu.
func (k *Kubelet) setJobs(list []*nodeapi.Job) map[string]*nodeapi.Job {
	jobs := make(map[string]*nodeapi.Job, len(list))
	for _, j := range list {
		if checkName(j.GetId(), idLimit) != nil {
			continue // it could have no directory
		}
		if jobs[j.GetId()] = j; k.jobs[j.GetId()] == nil {
			inputs, _ := k.tree.inputs(j.GetId()) // it has none before its first container
			k.config.Jobs.Begin(context.Background(), j, inputs)
		}
	}
	return jobs
}

// setVolumes has the volumes of the pods fetched, and returns which pods have any; the caller holds mu.
func (k *Kubelet) setVolumes(list []*nodeapi.Volumes) map[string]bool {
	volumes := make(map[string]bool, len(list))
	for _, v := range list {
		if checkName(v.GetId(), idLimit) == nil {
			volumes[v.GetId()] = true
			k.config.Volumes.Begin(v)
		}
	}
	return volumes
}

// has tells whether the control plane knows the pod, as an instance or as a job, or with volumes; the caller
// holds mu.
func (k *Kubelet) has(id string) bool { return k.pods[id] != nil || k.jobs[id] != nil || k.volumes[id] }

// SaysJob tells whether the pod is a job by what its containers say. The control plane's word
// may come after that.
func (k *Kubelet) SaysJob(id string) bool {
	_, err := k.tree.read(id, jobName)
	return err == nil
}

// leave lets go of the directory of a pod that the set has no more, at once if none of its
// containers has it; the caller holds mu.
func (k *Kubelet) leave(id string) {
	if k.has(id) {
		return // it is another thing still
	}
	removed, err := k.tree.remove(id)
	if err != nil {
		k.config.Log.Error("a pod has left files", "instance", id, "error", err)
	}
	if !removed {
		k.tree.forgotten(id)
	}
}

// Run removes now and then what pods left, until ctx ends.
func (k *Kubelet) Run(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.mu.Lock()
			if k.known {
				k.sweep()
			}
			k.mu.Unlock()
		}
	}
}

// sweep removes the directories of pods that are gone; the caller holds mu.
func (k *Kubelet) sweep() {
	known := make(map[string]bool, len(k.pods)+len(k.jobs))
	for id := range k.pods {
		known[nodeapi.SandboxDirectory(id)] = true
	}
	for id := range k.jobs {
		known[nodeapi.SandboxDirectory(id)] = true
	}
	for id := range k.volumes {
		known[nodeapi.SandboxDirectory(id)] = true
	}
	now := time.Now()
	before := now
	if k.config.Succeeds {
		before = now.Add(-abandoned)
	}
	if err := k.tree.sweep(func(dir string, held bool, since time.Time) bool {
		return known[dir] || !since.Before(before) || held && !since.Before(now.Add(-forgotten))
	}); err != nil {
		k.config.Log.Error("what pods left cannot be removed", "error", err)
	}
	if k.config.Volumes != nil {
		k.config.Volumes.Sweep(func(dir string) bool { return known[dir] || k.tree.has(dir) })
	}
}

// enter gives every container of a pod that asks what its pod needs. Whether the pod is a
// function's is not asked: a Service may be annotated later than its pods start.
func (k *Kubelet) enter(ctx context.Context, r *nodeapi.DescribeRequest) (*needs, string, error) {
	if r.GetPod() == nil {
		return nil, "", status.Error(codes.NotFound, "not a container of a pod")
	}
	id, err := podID(r.GetPod())
	if err != nil {
		return nil, "", err
	}
	var notes []string
	if r.GetJob() {
		notes = append(notes, jobName)
	}
	err = k.tree.hold(id, r.GetSandbox(), notes...)
	switch {
	case errors.Is(err, errFull):
		return nil, "", status.Error(codes.ResourceExhausted, err.Error())
	case err != nil:
		return nil, "", status.Error(codes.Internal, err.Error())
	}
	traceparent, job := k.entered(id)
	k.remade(id, r.GetPod().GetContainer())
	sb := k.podSandbox(id, job || r.GetJob(), false)
	sb.S3 = r.GetS3()
	if r.GetConnections() {
		sb.Connections = k.connectionsOf(ctx, id, r.GetPod().GetContainer())
	}
	sb.Gate = k.gateOf(id, r.GetPod().GetContainer(), sb)
	n, err := k.bring(sb)
	if err != nil {
		return nil, "", status.Error(codes.Internal, err.Error())
	}
	return n, traceparent, nil
}

// connectionsOf is what a pod's container is to be connected to; nil: nothing, or nobody says so in time.
func (k *Kubelet) connectionsOf(ctx context.Context, id, container string) *nodeapi.Connections {
	patience := connectionsTimeout
	if at, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(at)-answerTime)
	}
	c, err := Announced(k.ctx, patience, errLate, func() (*nodeapi.Connections, <-chan struct{}, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if c := k.connections[id]; c != nil {
			return c, nil, nil
		}
		return nil, k.connected.Next(), nil
	})
	if err != nil {
		k.config.Log.Warn("a container starts without its connections", "instance", id, "container", container, "error", err)
	}
	if err != nil || c.GetContainer() != container {
		return nil
	}
	return c
}

// sandbox is known by its directory.
func (k *Kubelet) sandbox(id string) (Sandbox, error) {
	return k.podSandbox(id, k.SaysJob(id), true), nil
}

// starting has a pod's container wait for what it needs. Its shim knows that it is a job's: the
// control plane may not have told of it yet.
func (k *Kubelet) starting(r *nodeapi.StageRequest) (*needs, error) {
	id, err := podID(r.GetPod())
	if err != nil {
		return nil, err
	}
	n, err := k.bring(k.podSandbox(id, true, true))
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, "the pod has no directory for its input")
	}
	return n, nil
}

// making is asked by the shim of a pod's container that has been described.
func (k *Kubelet) making(r *nodeapi.MountsRequest) (*needs, string, error) {
	id, err := podID(r.GetPod())
	if err != nil {
		return nil, "", err
	}
	traceparent, job := k.entered(id)
	n, err := k.bring(k.podSandbox(id, job || k.SaysJob(id), true))
	if err != nil {
		return nil, "", status.Error(codes.FailedPrecondition, "the pod has no directory of its own")
	}
	return n, traceparent, nil
}

// left lets go of a container, and of its pod's directory with the last one. A pod of the set
// keeps it: its containers may be started again.
func (k *Kubelet) left(r *nodeapi.GoneRequest) error {
	id, err := podID(r.GetPod())
	if err != nil {
		return err
	}
	if err := k.release(id, r.GetSandbox()); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (k *Kubelet) release(id, container string) error {
	if err := k.tree.release(id, container); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.has(id) {
		return nil
	}
	_, err := k.tree.remove(id)
	return err
}

// podID is the pod's sandbox's id, if it can be a pod's.
func podID(p *nodeapi.Pod) (string, error) {
	for _, part := range []string{p.GetNamespace(), p.GetName(), p.GetUid()} {
		err := checkName(part, nameLimit)
		if err == nil && strings.Contains(part, "_") {
			err = fmt.Errorf("%.64q is no part of a pod's name", part)
		}
		if err != nil {
			return "", status.Error(codes.InvalidArgument, err.Error())
		}
	}
	return p.SandboxID(), nil
}
