package containerd

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// Cleanup kills and deletes all tasks and containers of a namespace in the
// containerd at socket. It goes on after a failure and returns all of them.
func Cleanup(ctx context.Context, socket, namespace string) error {
	c, err := connect(ctx, socket)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx = namespaces.WithNamespace(ctx, namespace)
	containers, err := c.Containers(ctx)
	if err != nil {
		return fmt.Errorf("listing containers of %s: %w", namespace, err)
	}
	var failed []error
	for _, container := range containers {
		if err := remove(ctx, container); err != nil {
			failed = append(failed, fmt.Errorf("removing container %s: %w", container.ID(), err))
		}
	}
	if err := removeSnapshots(ctx, c.SnapshotService(Snapshotter)); err != nil {
		failed = append(failed, fmt.Errorf("removing snapshots of %s: %w", namespace, err))
	}
	return errors.Join(failed...)
}

// remove takes away a container and its task, if it has one. Another's deletion in the
// meantime is as good as ours.
func remove(ctx context.Context, container client.Container) error {
	task, err := container.Task(ctx, nil)
	if err == nil {
		_, err = task.Delete(ctx, client.WithProcessKill)
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("deleting its task: %w", err)
	}
	if err := container.Delete(ctx); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("deleting it: %w", err)
	}
	return nil
}

// removeSnapshots removes the containers' own file systems. The images' layers below
// them stay, unpacked, for the next start.
func removeSnapshots(ctx context.Context, s snapshots.Snapshotter) error {
	var own []string
	err := s.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		own = append(own, info.Name)
		return nil
	}, "kind==active")
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	for _, name := range own {
		if err := s.Remove(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	return nil
}
