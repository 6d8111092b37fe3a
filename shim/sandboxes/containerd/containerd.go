// Package containerd runs instances as containerd tasks with Headstart's shim.
package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

const (
	// Namespace is the containerd namespace of all instances.
	Namespace = nodeapi.ContainerdNamespace
	// runtimeName makes containerd start containerd-shim-headstart-v2.
	runtimeName = "io.containerd.headstart.v2"
	snapshotter = "overlayfs"

	labelFunction = "headstart.dev/function"
	labelAddress  = "headstart.dev/address"

	// fieldImage is where a manifest names the image.
	fieldImage = "spec.template.spec.containers[0].image"

	// cpuPeriod in microseconds is the kernel's default CFS period.
	cpuPeriod = 100_000
	// makeTimeout bounds the making of a sandbox whose image is there, which takes a
	// tenth of a second, or many of them on a node that makes dozens at a time.
	makeTimeout = 30 * time.Second
	// listTimeout bounds the wait for a containerd that starts at the same time.
	listTimeout = 30 * time.Second

	// containerd's socket is on this machine, and a cold start waits for it: a restart
	// takes half a second.
	redialFirst   = 20 * time.Millisecond
	redialLongest = 500 * time.Millisecond
)

// Config says where the runtime finds what it needs.
type Config struct {
	// Socket is containerd's.
	Socket string
	// StateDir holds network namespaces, CNI's state and the logs.
	StateDir string
	// PluginDir holds the CNI plugins bridge and host-local.
	PluginDir string
	// Bridge is the name of the device that sandboxes are attached to; it is made in
	// the network namespace of the calling process.
	Bridge string
	// PodSubnet is the range of the sandboxes' addresses.
	PodSubnet netip.Prefix
}

// Runtime implements sandboxes.Containers.
type Runtime struct {
	client *client.Client
	net    *network
	logs   *logs
	hosts  *hosts

	// The subscriptions to tasks' exits live as long as the runtime.
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// New returns a runtime, whether or not containerd serves already.
func New(cfg Config) (*Runtime, error) {
	n, err := newNetwork(cfg)
	if err != nil {
		return nil, err
	}
	l, err := openLogs(filepath.Join(cfg.StateDir, "logs"))
	if err != nil {
		return nil, err
	}
	// The bridge's own address is the sandboxes' way out, and the node for them.
	h, err := openHosts(filepath.Join(cfg.StateDir, "hosts"), cfg.PodSubnet.Masked().Addr().Next())
	if err != nil {
		return nil, err
	}
	redial := backoff.DefaultConfig
	redial.BaseDelay, redial.MaxDelay = redialFirst, redialLongest
	c, err := client.New(cfg.Socket, client.WithDefaultNamespace(Namespace), client.WithExtraDialOpts([]grpc.DialOption{
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: redialLongest}),
		// What is asked of a containerd that restarts waits for it, within its own time.
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	}))
	if err != nil {
		return nil, fmt.Errorf("connecting to containerd: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Runtime{client: c, net: n, logs: l, hosts: h, ctx: ctx, cancel: cancel}, nil
}

// Close ends the connection; tasks go on.
func (r *Runtime) Close() error {
	r.cancel()
	r.wg.Wait()
	return r.client.Close()
}

// Resolve has sandboxes find the node by these names, and by no others of before. It is not to
// be called twice at a time.
func (r *Runtime) Resolve(names []string) error { return r.hosts.set(names) }

// TrimLogs keeps the functions' logs within their limit.
func (r *Runtime) TrimLogs() error { return r.logs.trim() }

// Create implements sandboxes.Containers. The network is made while containerd makes the
// container and its task: neither needs the other before the program starts.
//
// Once it has the image it heeds no cancellation until all is made: containerd and the
// CNI plugins would go on behind its back, and finish after the clean-up.
func (r *Runtime) Create(ctx context.Context, s sandboxes.Spec) (_ sandboxes.Container, err error) {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	defer func() { err = lost(err) }()
	image, err := r.image(ctx, s.Image)
	if err != nil {
		return nil, err
	}
	ns, err := r.net.newNamespace(s.ID)
	if err != nil {
		return nil, err
	}
	sb := &sandbox{runtime: r, id: s.ID, function: s.Function}
	defer func() {
		if err != nil {
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			_ = sb.Remove(undo, 0) // the first error is the one that says something
		}
	}()
	making, cancel := context.WithTimeout(context.WithoutCancel(ctx), makeTimeout)
	defer cancel()
	var g errgroup.Group
	g.Go(func() (err error) {
		sb.address, err = r.net.attach(making, s.ID)
		return err
	})
	g.Go(func() (err error) {
		return sb.create(making, image, s, ns)
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if _, err := sb.container.SetLabels(making, map[string]string{labelAddress: sb.address.String()}); err != nil {
		return nil, fmt.Errorf("labelling the container: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return sb, nil
}

// lost says of what containerd took with it when it ended that another instance can be had: that
// waits for containerd.
func lost(err error) error {
	if !errdefs.IsUnavailable(err) {
		return err
	}
	return errors.Join(problem.New(http.StatusServiceUnavailable, problem.ReasonInstanceGone, "",
		"the node's containerd ended while the sandbox was made; try again"), err)
}

// image returns the image, unpacked, pulling it when the node does not have it.
func (r *Runtime) image(ctx context.Context, ref string) (client.Image, error) {
	image, err := r.client.GetImage(ctx, ref)
	if errdefs.IsNotFound(err) {
		image, err = r.client.Pull(ctx, ref, client.WithPullUnpack, client.WithPullSnapshotter(snapshotter))
		if err != nil && ctx.Err() == nil && !errdefs.IsUnavailable(err) { // then it is containerd that is away
			return nil, problem.New(http.StatusBadGateway, "ImageUnavailable", fieldImage,
				fmt.Sprintf("image %q is neither on the node nor can it be pulled; `headstart image import` brings one from a file", ref))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("looking up image %q: %w", ref, err)
	}
	unpacked, err := image.IsUnpacked(ctx, snapshotter)
	if err != nil {
		return nil, fmt.Errorf("looking up the snapshot of image %q: %w", ref, err)
	}
	if !unpacked {
		if err := image.Unpack(ctx, snapshotter); err != nil {
			return nil, fmt.Errorf("unpacking image %q: %w", ref, err)
		}
	}
	return image, nil
}

func (r *Runtime) spec(image client.Image, s sandboxes.Spec, ns string) []oci.SpecOpts {
	env := make([]string, 0, len(s.Env))
	for k, v := range s.Env {
		env = append(env, k+"="+v)
	}
	opts := []oci.SpecOpts{
		oci.WithDefaultSpec(),
		oci.WithDefaultUnixDevices,
		oci.WithImageConfigArgs(image, s.Args),
		oci.WithEnv(env),
		oci.WithNoNewPrivileges,
		oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: ns}),
		oci.WithCgroup("/headstart/" + s.ID),
		oci.WithMounts([]specs.Mount{
			{Destination: "/etc/hosts", Type: "bind", Source: r.hosts.path, Options: []string{"rbind", "ro"}},
			{
				Destination: "/etc/resolv.conf", Type: "bind", Source: "/etc/resolv.conf",
				Options: []string{"rbind", "ro"},
			},
		}),
	}
	if len(s.Annotations) > 0 {
		opts = append(opts, oci.WithAnnotations(s.Annotations))
	}
	if len(s.Command) > 0 {
		opts = append(opts, oci.WithProcessArgs(append(append([]string{}, s.Command...), s.Args...)...))
	}
	if s.CPULimitMillis > 0 {
		opts = append(opts, oci.WithCPUCFS(s.CPULimitMillis*cpuPeriod/1000, cpuPeriod))
	}
	if s.MemoryLimit > 0 {
		opts = append(opts, oci.WithMemoryLimit(uint64(s.MemoryLimit)))
	}
	// Last: the profile depends on the capabilities that are in the spec by then.
	return append(opts, seccomp.WithDefaultProfile())
}

// List implements sandboxes.Containers.
func (r *Runtime) List(ctx context.Context) ([]sandboxes.Container, error) {
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, Namespace), listTimeout)
	defer cancel()
	all, err := r.client.Containers(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}
	var started []sandboxes.Container
	keep := map[string]bool{}
	for _, c := range all {
		sb := &sandbox{runtime: r, id: c.ID(), container: c}
		if err := sb.adopt(ctx); err != nil {
			// Half-made: nobody waits for it any more.
			if err := sb.Remove(ctx, 0); err != nil {
				return nil, fmt.Errorf("removing container %s: %w", c.ID(), err)
			}
			continue
		}
		keep[c.ID()] = true
		started = append(started, sb)
	}
	if err := r.net.sweep(ctx, keep); err != nil {
		return nil, err
	}
	return started, nil
}

func withLabels(function string) client.NewContainerOpts {
	return func(_ context.Context, _ *client.Client, c *containers.Container) error {
		c.Labels = map[string]string{labelFunction: function}
		return nil
	}
}
