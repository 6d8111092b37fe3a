package runtime

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containerd/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/descriptors"
	"github.com/headstart-mesh/headstart/shim/runtime/spec"
)

const (
	// SocketVariable names the environment variable with the path of the daemon's
	// socket. containerd hands its own environment to its shims.
	SocketVariable = "HEADSTART_NODE_SOCKET"
	// DefaultSocket is where the daemon listens if the variable is not set.
	DefaultSocket = "/run/headstart/node.sock"
	// RootsVariable names the environment variable with the daemon's directories, a colon between each
	// two. It is of containerd's environment as well: the daemon cannot set it.
	RootsVariable = "HEADSTART_ROOTS"
	// DefaultRoots are those directories if the variable is not set.
	DefaultRoots = "/var/lib/headstart:/run/headstart"
)

// Node is the node as its shims have it.
type Node struct {
	// Socket is the path of the daemon's.
	Socket string
	// Roots are the daemon's directories: what it names for a sandbox lies below one of them.
	Roots []string
	Binds Binds
}

const (
	// describeTimeout is how long a sandbox waits for the daemon's answer. The daemon
	// answers from memory, in well under a millisecond; a busy machine may hold it
	// up, but a sandbox that waits longer than this had better start without it.
	describeTimeout = 2 * time.Second
	// connectionsTimeout is that time of a container with connections. The daemon waits for the control plane's word, which
	// it answers without after 10 s.
	connectionsTimeout = 12 * time.Second
	// goneTimeout bounds the word of a sandbox's end. Nobody waits for it but the shim's own
	// end, which has 5 s.
	goneTimeout = 2 * time.Second
	// stageTimeout is above what a job may have its start wait for its input, which the daemon
	// keeps to: the longest headstart.dev/ready-timeout, and the wait for the job's news.
	// The longest headstart.dev/volumes-wait is no longer.
	stageTimeout = 11 * time.Minute
	// stageRetry paces the questions to a daemon that is away, and stageTries is when it counts
	// as gone: after half a minute, which a restart takes well under.
	stageRetry = 200 * time.Millisecond
	stageTries = 150
	// maxDescription bounds the daemon's answer, in bytes. It is a few hundred.
	maxDescription = 1 << 20
)

// The reasons for a lapse, as they appear in the log and in spans.
const (
	daemonAway         = "DaemonAway"
	daemonSlow         = "DaemonSlow"
	describeFailed     = "DescribeFailed"
	descriptionInvalid = "DescriptionInvalid"
	sourceMissing      = "MountSourceMissing"
	bundleUnreadable   = "BundleUnreadable"
	bundleUnwritable   = "BundleUnwritable"
	descriptorsMissing = "DescriptorsMissing"
	volumesMissing     = "VolumesMissing"
	endpointFailed     = "EndpointFailed"
	connectUnavailable = "ConnectUnavailable"
)

// lapse is why a sandbox goes without what belongs in it.
type lapse struct {
	reason string
	cause  error
}

// describe asks what belongs in a container's sandbox; nil means that it is none of ours.
func (n Node) describe(ctx context.Context, id string, of spec.Facts) (*nodeapi.DescribeResponse, *lapse) {
	patience := describeTimeout
	if of.Connections {
		patience = connectionsTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var d *nodeapi.DescribeResponse
	err := n.call(func(c nodeapi.SandboxesClient) (err error) {
		d, err = c.Describe(ctx, &nodeapi.DescribeRequest{Sandbox: id, Pod: of.Pod, Job: of.Job, S3: of.S3,
			Connections: of.Connections})
		return err
	})
	switch status.Code(err) {
	case codes.OK:
		return d, nil
	case codes.NotFound:
		return nil, nil
	case codes.DeadlineExceeded:
		return nil, &lapse{daemonSlow, err}
	case codes.Unavailable:
		return nil, &lapse{daemonAway, err}
	default:
		return nil, &lapse{describeFailed, err}
	}
}

// fetch returns the descriptors that a container was described with. If they cannot be had, d names none any more.
func (n Node) fetch(ctx context.Context, id string, d *nodeapi.DescribeResponse) ([]*os.File, *lapse) {
	if len(d.GetDescriptors()) == 0 {
		return nil, nil
	}
	files, err := descriptors.Fetch(ctx, descriptors.Path(n.Socket), id, len(d.GetDescriptors()))
	if err != nil {
		d.Descriptors = nil
		log.G(ctx).WithError(err).WithField("sandbox", id).WithField("reason", descriptorsMissing).
			Warn("a program starts without the descriptors that the daemon has for it")
		return nil, &lapse{descriptorsMissing, err}
	}
	return files, nil
}

// gone says that the sandbox is no more.
func (n Node) gone(sandbox string, pod *nodeapi.Pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	return n.call(func(c nodeapi.SandboxesClient) error {
		_, err := c.Gone(ctx, &nodeapi.GoneRequest{Sandbox: sandbox, Pod: pod})
		return err
	})
}

// closed says that nothing leaves the container's sandbox but answers, or why that cannot be.
func (n Node) closed(ctx context.Context, sandbox string, pod *nodeapi.Pod, why string) error {
	ctx, cancel := context.WithTimeout(ctx, describeTimeout)
	defer cancel()
	return n.call(func(c nodeapi.SandboxesClient) error {
		_, err := c.Closed(ctx, &nodeapi.ClosedRequest{Sandbox: sandbox, Pod: pod, Open: why})
		return err
	})
}

// stage returns when a job's input is in its sandbox.
func (n Node) stage(ctx context.Context, sandbox string, pod *nodeapi.Pod) error {
	return n.patiently(ctx, func(ctx context.Context, c nodeapi.SandboxesClient) error {
		_, err := c.Stage(ctx, &nodeapi.StageRequest{Sandbox: sandbox, Pod: pod})
		return err
	})
}

// mounts returns a sandbox's volumes when they are there.
func (n Node) mounts(ctx context.Context, sandbox string, pod *nodeapi.Pod) (mounts []*nodeapi.Mount, err error) {
	err = n.patiently(ctx, func(ctx context.Context, c nodeapi.SandboxesClient) error {
		m, err := c.Mounts(ctx, &nodeapi.MountsRequest{Sandbox: sandbox, Pod: pod})
		mounts = m.GetMounts()
		return err
	})
	return mounts, err
}

// patiently makes a call whose answer a start waits for. A daemon that is started again meanwhile
// is asked again.
func (n Node) patiently(ctx context.Context, ask func(context.Context, nodeapi.SandboxesClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, stageTimeout)
	defer cancel()
	for try := 1; ; try++ {
		err := n.call(func(c nodeapi.SandboxesClient) error { return ask(ctx, c) })
		if status.Code(err) != codes.Unavailable || try == stageTries {
			return err
		}
		select {
		case <-time.After(stageRetry):
		case <-ctx.Done():
			return err
		}
	}
}

// call makes one call. The connection is for it alone: a sandbox asks once in its life,
// and an open connection would cost memory for as long as it runs.
func (n Node) call(do func(nodeapi.SandboxesClient) error) error {
	conn, err := grpc.NewClient("unix:"+n.Socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket's mode is 0600
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxDescription)))
	if err != nil {
		return fmt.Errorf("connecting to the daemon at %s: %w", n.Socket, err)
	}
	defer conn.Close()
	if err := do(nodeapi.NewSandboxesClient(conn)); err != nil {
		return fmt.Errorf("asking the daemon at %s: %w", n.Socket, err)
	}
	return nil
}
