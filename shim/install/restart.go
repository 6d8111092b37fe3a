package install

import (
	"context"
	"errors"
	"fmt"

	"github.com/headstart-mesh/headstart/shim/install/layout"
)

// unread tells whether the containerd that runs has not read its configuration as it is.
func (c *change) unread() bool {
	return c.journal.Restart != nil && c.process != "" && *c.journal.Restart == c.process
}

// restart has containerd read its configuration, if it has not since that changed.
func (i *Installer) restart(ctx context.Context, c *change, containerd Runtime, watched bool) error {
	was := c.journal.Restart
	if was == nil {
		return nil
	}
	now, err := containerd.Process(ctx)
	switch {
	case err != nil:
		i.Log.Info("containerd does not run; it reads its configuration when it starts")
	case now.ID != *was:
		i.Log.Info("containerd has been restarted since")
	default:
		const what = "containerd is restarted to read its configuration; containers go on meanwhile, and new ones wait"
		i.Log.Info(what)
		i.Node.Announce(ctx, EventRestarting, what)
		if err := containerd.Restart(ctx, *was, watched); err != nil {
			return fmt.Errorf("restarting containerd: %w", err)
		}
		i.Log.Info("containerd is back")
	}
	c.journal.Restart = nil
	return c.save()
}

// rollback puts the configuration back with which containerd ran last, for the case that
// it does not start with ours. The next installation tries again.
func (i *Installer) rollback(c *change) error {
	if err := c.revertAll(true); err != nil {
		return fmt.Errorf("putting the configuration back: %w", err)
	}
	i.Log.Warn("containerd's configuration is as it was before")
	return nil
}

// verify runs a sandbox. A containerd that does not know the runtime is one that started
// while its configuration was written: it gets one restart more.
func (i *Installer) verify(ctx context.Context, c *change, containerd Runtime, plan *layout.Plan) error {
	if !i.Verify {
		return nil
	}
	err := containerd.Verify(ctx, plan.SystemdCgroup)
	if errors.Is(err, ErrUnknownHandler) && i.Restart {
		now, failed := containerd.Process(ctx)
		if failed != nil {
			return errors.Join(err, failed)
		}
		c.journal.Restart = &now.ID
		if err := c.save(); err != nil {
			return err
		}
		if err := i.restart(ctx, c, containerd, false); err != nil {
			return err
		}
		err = containerd.Verify(ctx, plan.SystemdCgroup)
	}
	if err != nil {
		return fmt.Errorf("running a sandbox to verify the installation: %w", err)
	}
	i.Log.Info("a sandbox has run")
	return nil
}
