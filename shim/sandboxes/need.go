package sandboxes

import (
	"cmp"
	"context"
	"maps"
	"os"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Wait is what the start of a sandbox's program does about a need that is not there yet.
type Wait int

// WaitNo: the program starts at once. WaitStart: its start waits, and goes on without the need
// if that cannot be had. WaitFail: its start waits, and fails without the need.
const (
	WaitNo Wait = iota
	WaitStart
	WaitFail
)

// Need is something that a sandbox is to find when its program starts.
type Need struct {
	Mounts []*nodeapi.Mount
	Env    map[string]string
	// Descriptors are what each of its containers inherits.
	Descriptors []Descriptor
	// Endpoints are what its shim listens for on its loopback, and hands to the daemon.
	Endpoints []*nodeapi.Endpoint
	// Streams: its shim dials and joins streams for the daemon. Connect: it also asks the daemon about the program's
	// connections.
	Streams, Connect bool
	// Gate is how the sandbox is to be closed; nil: it is not.
	Gate *nodeapi.Gate
	// Traceparent is the trace that the sandbox's making belongs to, if the runtime knows none.
	Traceparent string
	Wait        Wait
	// Await returns when the need is there, or the *problem.Problem for which it will not be. It
	// is nil with WaitNo, and if no program's start waits.
	Await func(ctx context.Context) error
	// Volumes returns mounts that are there later than the sandbox's own directories, or the *problem.Problem for which
	// the sandbox's container is not to be created; nil: there are none.
	Volumes func(ctx context.Context) ([]*nodeapi.Mount, error)
}

// Provider brings the needs of one kind.
type Provider interface {
	// Bring begins to bring what the sandbox needs of the kind, and says what that is; the zero
	// Need is nothing. It is called for each container of the sandbox, and again for one that
	// runs when the daemon starts.
	Bring(sb Sandbox) (Need, error)
	// Release lets go of what was brought, if anything was. The sandbox is no more.
	Release(id string)
}

// Jobs bring the inputs of jobs: of sandboxes whose programs wait for a need.
type Jobs interface {
	Provider
	// Begin has a job's input fetched; ctx is for its trace only. inputs is where the job's
	// sandbox sees its inputs, nil while there is none.
	Begin(ctx context.Context, j *nodeapi.Job, inputs *staging.Dir)
}

// Volumes bring the volumes of sandboxes.
type Volumes interface {
	Provider
	// Begin has a sandbox's volumes fetched from now on.
	Begin(m *nodeapi.Volumes)
	// Sweep lets go of those of sandboxes that are no more, as keep says by their directories.
	Sweep(keep func(directory string) bool)
}

// Sandbox is what a provider knows of a sandbox.
type Sandbox struct {
	ID string
	// Namespace is that of its function.
	Namespace string
	// Function is its name, empty if none is known to have the sandbox: on Kubernetes the control
	// plane may say so later than the sandbox is made.
	Function string
	// Job: its program runs once, with an input of its own.
	Job bool
	// S3 is the store whose S3 API its containers ask for; empty: none. It is not known of one that runs when the daemon
	// starts.
	S3 string
	// Connections are what the container that is being made is to be connected to; nil: nothing. They are not known of one
	// that runs when the daemon starts.
	Connections *nodeapi.Connections
	// Gate is set if its program may work on requests before their turn: the sandbox is closed for that.
	Gate *nodeapi.Gate
	// Inputs is where it sees inputs.
	Inputs *staging.Dir

	tree *tree
	// runs: it was made before, so what is new can be mounted no more.
	runs bool
}

// Directory returns a directory of the sandbox's own, which is the caller's to close, and its
// path on the node. A sandbox that runs already has those that it was made with: for others the
// error is fs.ErrNotExist.
func (sb Sandbox) Directory(name string) (*os.Root, string, error) {
	return sb.tree.directory(sb.ID, name, !sb.runs)
}

// Runs tells whether it was made before: what is new can be mounted no more.
func (sb Sandbox) Runs() bool { return sb.runs }

// needs is the list of what one sandbox needs.
type needs struct {
	sandbox string
	all     []Need

	mu      sync.Mutex
	failure error
}

// await returns when the program may start.
func (n *needs) await(ctx context.Context) (err error) {
	defer func() { n.note(err) }()
	for _, need := range n.all {
		if need.Wait == WaitNo || need.Await == nil {
			continue
		}
		if err := need.Await(ctx); err != nil && need.Wait == WaitFail {
			return err
		}
	}
	return nil
}

// volumes returns the mounts that a container is created with besides those that are described.
func (n *needs) volumes(ctx context.Context) (all []*nodeapi.Mount, err error) {
	defer func() { n.note(err) }()
	for _, need := range n.all {
		if need.Volumes == nil {
			continue
		}
		mounts, err := need.Volumes(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, mounts...)
	}
	return all, nil
}

func (n *needs) note(failure error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure = failure
}

// failed is why the program was not to start, nil if nothing is known against it.
func (n *needs) failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failure
}

// describe is the sum of the needs.
func (n *needs) describe(traceparent, otlp string) *nodeapi.DescribeResponse {
	d := &nodeapi.DescribeResponse{Env: map[string]string{}, Traceparent: n.trace(traceparent), OtlpTarget: otlp}
	for _, need := range n.all {
		d.Mounts = append(d.Mounts, need.Mounts...)
		maps.Copy(d.Env, need.Env)
		for _, e := range need.Endpoints {
			d.Endpoints = append(d.Endpoints, proto.CloneOf(e))
		}
		d.Streams, d.Connect = d.Streams || need.Streams, d.Connect || need.Connect
		if need.Gate != nil {
			d.Gate = need.Gate
		}
	}
	for _, own := range n.descriptors() {
		d.Descriptors = append(d.Descriptors, own.Name)
	}
	return d
}

// trace is the one that the sandbox's making belongs to: the runtime's, or else a need's.
func (n *needs) trace(traceparent string) string {
	for _, need := range n.all {
		traceparent = cmp.Or(traceparent, need.Traceparent)
	}
	return traceparent
}

func (n *needs) descriptors() (all []Descriptor) {
	for _, need := range n.all {
		all = append(all, need.Descriptors...)
	}
	return all
}
