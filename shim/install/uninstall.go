package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// shown is how many pods an error names.
const shown = 5

// Uninstall takes Headstart off the node: every file is as it was before, unless others
// have changed it since; then it has nothing of Headstart's. What the daemon has left goes,
// too.
func (i *Installer) Uninstall(ctx context.Context) (err error) {
	unlock, err := i.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	// No pod that needs the runtime shall come from now on.
	if err := i.Node.SetReady(ctx, false); err != nil {
		return err
	}
	c, err := i.open()
	if err != nil {
		return err
	}
	if c.journal == nil {
		i.Log.Info("nothing is installed on this node")
		return i.cleanUp(ctx)
	}
	containerd, err := i.connect(c.journal.Socket)
	if err != nil {
		return err
	}
	if p, err := containerd.Process(ctx); err == nil {
		c.process = p.ID
		if err := i.unused(ctx, containerd); err != nil {
			return err
		}
	}
	// An installation that comes after an interruption here has nothing whole to go back to.
	c.journal.Trial = &trial{}
	if err := c.save(); err != nil {
		return err
	}
	if err := c.revertAll(true); err != nil {
		return err
	}
	if !i.Restart && c.unread() {
		c.note("containerd knows the runtime until it is restarted")
	} else if err := i.restart(ctx, c, containerd, c.journal.Watched); err != nil {
		return err
	}
	if err := c.revertAll(false); err != nil {
		return err
	}
	if err := i.cleanUp(ctx); err != nil {
		return err
	}
	if err := c.end(); err != nil {
		return err
	}
	i.report(c, nil)
	i.Node.Announce(ctx, EventRemoved, "Headstart has been removed from this node")
	i.Log.Info("the node is as it was before")
	return nil
}

// cleanUp removes what the daemon has left. The log of the installer's pod goes with the pod: an event says what is not to be lost.
func (i *Installer) cleanUp(ctx context.Context) error {
	stay, err := removeRemains(i.Tree)
	if slices.Contains(stay, daemonWrites) { // and what it is in with it
		stay = slices.DeleteFunc(stay, func(p string) bool { return p == daemonState })
	}
	for _, p := range stay {
		why := "others use it"
		if p == daemonWrites {
			why = "it has objects that are not in their stores yet; install Headstart again to have them uploaded"
			i.Node.Announce(ctx, EventWritesLeft, p+" stays: "+why)
		}
		i.Log.Warn(p + " stays: " + why)
	}
	return err
}

// revertAll puts back all files that containerd reads when it starts, or all others.
func (c *change) revertAll(config bool) error {
	for _, r := range slices.Backward(c.journal.Files) {
		if r.Config != config {
			continue
		}
		if err := c.revert(r); err != nil {
			return err
		}
	}
	return nil
}

// unused refuses to take the shim from under running pods: containerd could no longer
// clean up after them.
func (i *Installer) unused(ctx context.Context, containerd Runtime) error {
	pods, err := containerd.Sandboxes(ctx)
	if err != nil {
		i.Log.Warn("containerd does not say which pods use the runtime", "error", err)
		return nil
	}
	if len(pods) == 0 || i.Force {
		return nil
	}
	names := strings.Join(pods[:min(len(pods), shown)], ", ")
	if len(pods) > shown {
		names += ", ..."
	}
	return fmt.Errorf("%d pods of this node use the runtime headstart (%s); delete them or take runtimeClassName off them, or go on with --force", len(pods), names)
}
