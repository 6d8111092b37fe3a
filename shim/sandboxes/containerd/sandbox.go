package containerd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	cgroup1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	cgroup2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/typeurl/v2"

	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// undoTimeout bounds the removal of a sandbox whose making failed.
const undoTimeout = 10 * time.Second

// rewaitDelay paces the attempts to hear of a task again while containerd restarts.
const rewaitDelay = 200 * time.Millisecond

const (
	// killed is the exit code of a program that was killed, as a shell gives it.
	killed = 128 + uint32(syscall.SIGKILL)
	// metricsTimeout bounds the question why a program was killed, which its end waits for.
	metricsTimeout = time.Second
)

// sandbox implements sandboxes.Container.
type sandbox struct {
	runtime      *Runtime
	id, function string
	address      netip.Addr
	mark         int64 // size of the function's log when the sandbox was made
	container    client.Container
	task         client.Task
	started      bool
	exited       chan struct{}
	exit         sandboxes.Exit // written before exited is closed
}

func (sb *sandbox) ID() string              { return sb.id }
func (sb *sandbox) Function() string        { return sb.function }
func (sb *sandbox) Address() netip.Addr     { return sb.address }
func (sb *sandbox) Exited() <-chan struct{} { return sb.exited }
func (sb *sandbox) Exit() sandboxes.Exit    { return sb.exit }

// Output implements sandboxes.Container. The shim has written all of it when the task is deleted.
func (sb *sandbox) Output() string { return sb.runtime.logs.end(sb.function, sb.mark) }

func (sb *sandbox) create(ctx context.Context, image client.Image, s sandboxes.Spec, ns string) error {
	c, err := sb.runtime.client.NewContainer(ctx, s.ID,
		client.WithSnapshotter(snapshotter),
		client.WithImage(image),
		client.WithNewSnapshot(s.ID, image),
		client.WithRuntime(runtimeName, nil),
		client.WithNewSpec(sb.runtime.spec(image, s, ns)...),
		withLabels(s.Function),
	)
	if err != nil {
		return fmt.Errorf("creating the container: %w", err)
	}
	sb.container = c
	sb.mark = sb.runtime.logs.size(s.Function)
	output, err := sb.runtime.logs.output(s.Function)
	if err != nil {
		return err
	}
	sb.task, err = c.NewTask(ctx, output)
	if err != nil {
		return fmt.Errorf("creating the task: %w", err)
	}
	return sb.wait()
}

// wait subscribes to the task's exit.
func (sb *sandbox) wait() error {
	// The subscription outlives the call that made the sandbox: it is the runtime's.
	life := namespaces.WithNamespace(sb.runtime.ctx, Namespace)
	status, err := sb.task.Wait(life)
	if err != nil {
		return fmt.Errorf("waiting for the task: %w", err)
	}
	sb.exited = make(chan struct{})
	sb.runtime.wg.Go(func() {
		for {
			st := <-status
			// The client passes gRPC's own error on. A task that containerd does not
			// know has ended, with its shim, in a way that nobody saw.
			if st.Error() == nil || errdefs.IsNotFound(errgrpc.ToNative(st.Error())) {
				sb.ended(life, st.ExitCode())
				return
			}
			// containerd is away; the shim and the program go on without it.
			select {
			case <-life.Done():
				return
			case <-time.After(rewaitDelay):
			}
			if status, err = sb.task.Wait(life); err != nil {
				return
			}
		}
	})
	return nil
}

// ended notes how the program has ended.
func (sb *sandbox) ended(ctx context.Context, code uint32) {
	sb.exit = sandboxes.Exit{Code: code, OutOfMemory: code == killed && sb.outOfMemory(ctx)}
	close(sb.exited)
}

// outOfMemory asks the kernel whether a killed program had no memory left. What cannot be asked any
// more was killed by somebody else: by Remove, or with its shim.
func (sb *sandbox) outOfMemory(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	m, err := sb.task.Metrics(ctx)
	if err != nil {
		return false
	}
	stats, err := typeurl.UnmarshalAny(m.GetData())
	if err != nil {
		return false
	}
	switch s := stats.(type) {
	case *cgroup1.Metrics:
		return s.GetMemoryOomControl().GetOomKill() > 0
	case *cgroup2.Metrics:
		return s.GetMemoryEvents().GetOomKill() > 0
	}
	return false
}

func (sb *sandbox) adopt(ctx context.Context) error {
	labels, err := sb.container.Labels(ctx)
	if err != nil {
		return err
	}
	sb.function = labels[labelFunction]
	if sb.address, err = netip.ParseAddr(labels[labelAddress]); err != nil {
		return err
	}
	if sb.task, err = sb.container.Task(ctx, nil); err != nil {
		return err
	}
	st, err := sb.task.Status(ctx)
	if err != nil {
		return err
	}
	switch sb.started = true; st.Status {
	case client.Running:
		return sb.wait()
	case client.Stopped:
		sb.exited = make(chan struct{})
		sb.ended(ctx, st.ExitStatus)
		return nil
	}
	return fmt.Errorf("task is %s", st.Status)
}

// Start implements sandboxes.Container.
func (sb *sandbox) Start(ctx context.Context) error {
	sb.started = true
	if err := sb.task.Start(namespaces.WithNamespace(ctx, Namespace)); err != nil {
		return lost(fmt.Errorf("starting the task: %w", err))
	}
	return nil
}

// Remove implements sandboxes.Container. It is safe on a sandbox that was made in part.
func (sb *sandbox) Remove(ctx context.Context, grace time.Duration) error {
	ctx = namespaces.WithNamespace(ctx, Namespace)
	return errors.Join(sb.removeContainer(ctx, grace), sb.runtime.net.detach(ctx, sb.id))
}

func (sb *sandbox) removeContainer(ctx context.Context, grace time.Duration) error {
	if sb.container == nil {
		// Perhaps the snapshot was made for it.
		err := sb.runtime.client.SnapshotService(snapshotter).Remove(ctx, sb.id)
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("removing the snapshot: %w", err)
		}
		return nil
	}
	if sb.task == nil {
		// A daemon that was killed between the two calls left a task that it did not
		// get to know.
		sb.task, _ = sb.container.Task(ctx, nil)
	}
	if sb.task != nil {
		if err := sb.end(ctx, grace); err != nil {
			return err
		}
	}
	if err := sb.container.Delete(ctx, client.WithSnapshotCleanup); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("deleting the container: %w", err)
	}
	return nil
}

// end signals the program, waits for at most grace, kills it, and deletes the task.
func (sb *sandbox) end(ctx context.Context, grace time.Duration) error {
	if grace > 0 && sb.started {
		if err := sb.task.Kill(ctx, syscall.SIGTERM); err == nil {
			timer := time.NewTimer(grace)
			defer timer.Stop()
			select {
			case <-sb.exited:
			case <-timer.C:
			case <-ctx.Done():
			}
		}
	}
	if _, err := sb.task.Delete(ctx, client.WithProcessKill); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("deleting the task: %w", err)
	}
	return nil
}
