// Package install puts Headstart's shim and its runtime on a node, and takes them off
// again so that every file is as it was. What it does can be interrupted anywhere, and is
// then finished or undone by the next run.
package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

const (
	executable = 0o755
	// lockInterval is how often a node that another installer works on is looked at.
	lockInterval = 200 * time.Millisecond
)

// Process is a containerd that runs.
type Process struct {
	// ID is different for each start, also of another boot.
	ID string
	// Config is the configuration's path on its command line, empty if none is there.
	Config string
}

// ErrUnknownHandler is what Verify returns while containerd does not know the runtime.
var ErrUnknownHandler = errors.New("containerd does not know the runtime headstart")

// Runtime is the node's containerd.
type Runtime interface {
	// Process fails if none answers.
	Process(ctx context.Context) (Process, error)
	// Restart returns when another process than was answers. If watched, that is expected
	// to happen by itself.
	Restart(ctx context.Context, was string, watched bool) error
	// Verify runs a sandbox. systemdCgroup says who makes its cgroup.
	Verify(ctx context.Context, systemdCgroup bool) error
	// Sandboxes are the names of the pods that use the runtime.
	Sandboxes(ctx context.Context) ([]string, error)
}

// Node is the node as Kubernetes sees it.
type Node interface {
	// SetReady has the node's label say whether sandboxes of Headstart can run there.
	SetReady(ctx context.Context, ready bool) error
	// Announce tells whoever watches the node; it is best effort.
	Announce(ctx context.Context, reason, message string)
}

// Events, by their reason.
const (
	EventRestarting = "ContainerdRestarting"
	EventReady      = "HeadstartReady"
	EventRemoved    = "HeadstartRemoved"
	EventUnsuited   = "HeadstartUnsuited"
	EventWritesLeft = "HeadstartWritesLeft"
)

// Settings are the operator's.
type Settings struct {
	Shim    string      // path of the shim to install, in this container
	Version string      // of Headstart
	Layout  layout.Kind // empty to find out
	Config  string      // path of containerd's configuration on the node, empty for the layout's
	Socket  string      // path of containerd's socket on the node, empty for the layout's
	// Restart is whether containerd may be restarted.
	Restart bool
	// Verify is whether a sandbox has to run before the node is labelled.
	Verify bool
	// Force removes the runtime although pods use it.
	Force bool
}

// Installer works on one node.
type Installer struct {
	Settings
	Tree *tree.Tree
	// Connect returns the containerd at a socket, whose path is this container's.
	Connect func(socket string) Runtime
	Node    Node
	Log     *slog.Logger
}

// lock waits for the node until ctx ends.
func (i *Installer) lock(ctx context.Context) (unlock func() error, err error) {
	for {
		unlock, err = i.Tree.Lock()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return unlock, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another installer works on this node: %w", context.Cause(ctx))
		case <-time.After(lockInterval):
		}
	}
}

// open returns the change that goes on from what is on the node.
func (i *Installer) open() (*change, error) {
	j, err := openJournal(i.Tree)
	if err != nil {
		return nil, err
	}
	c := &change{tree: i.Tree, journal: j}
	return c, c.tidy()
}

// Install has the node run sandboxes of Headstart, and labels it when one has run. A node that cannot have the runtime, which a
// *layout.Unsuited says, stays as it is, without the label.
func (i *Installer) Install(ctx context.Context) error {
	err := i.install(ctx)
	if unsuited, is := errors.AsType[*layout.Unsuited](err); is {
		i.Node.Announce(ctx, EventUnsuited, unsuited.Error())
		if err := i.Node.SetReady(ctx, false); err != nil {
			return errors.Join(unsuited, err)
		}
		return unsuited
	}
	return err
}

func (i *Installer) install(ctx context.Context) (err error) {
	unlock, err := i.lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	shim, err := os.ReadFile(i.Shim)
	if err != nil {
		return fmt.Errorf("reading the shim to install: %w; say where it is with --shim", err)
	}
	c, err := i.open()
	if err != nil {
		return err
	}
	// A plan that fails leaves nothing, so it comes before the journal.
	j := c.journal
	if j == nil {
		c.journal = &journal{}
	}
	plan, containerd, err := i.plan(ctx, c)
	if err != nil {
		return err
	}
	if j == nil {
		c.journal, err = newJournal(i.Tree)
		if errors.Is(err, unix.EROFS) { // and nothing has been changed; later it is a fault of the disk's
			return &layout.Unsuited{Why: err.Error()}
		}
		if err != nil {
			return err
		}
	}
	c.begin(head{i.Version, plan.Kind, plan.Socket, plan.Watched})
	if err := c.apply(plan, shim); err != nil {
		return err
	}
	i.report(c, plan.Notes)
	if !i.Restart && c.unread() {
		i.Log.Warn("containerd does not know the runtime until it is restarted; restart it, then run the installer again")
		return i.Node.SetReady(ctx, false)
	}
	if err := i.restart(ctx, c, containerd, plan.Watched); err != nil {
		return errors.Join(err, i.rollback(c), i.Node.SetReady(ctx, false))
	}
	if err := i.verify(ctx, c, containerd, plan); err != nil {
		unready := i.Node.SetReady(ctx, false)
		return errors.Join(i.giveUp(ctx, c, containerd, plan.Watched, err), unready)
	}
	if err := c.passed(); err != nil {
		return err
	}
	if err := i.Node.SetReady(ctx, true); err != nil {
		return err
	}
	if len(c.changed) > 0 {
		i.Node.Announce(ctx, EventReady, "sandboxes of Headstart "+i.Version+" can run on this node")
	}
	i.Log.Info("the node is ready", "layout", plan.Kind, "version", i.Version)
	return nil
}

// plan finds out what has to be on the node, and which containerd reads it.
func (i *Installer) plan(ctx context.Context, c *change) (*layout.Plan, Runtime, error) {
	kind := i.Layout
	if kind == "" {
		err := layout.Suits(c.before())
		if err != nil {
			return nil, nil, err
		}
		if kind, err = layout.Detect(c.before()); err != nil {
			return nil, nil, err
		}
	}
	plan, refused := layout.Make(c.before(), kind, i.Config)
	// The one that runs may read another configuration than the one at the usual place.
	asked := kind == layout.Containerd && i.Config == ""
	if refused != nil && !asked {
		return nil, nil, refused
	}
	socket := cmp.Or(i.Socket, layout.Socket(kind))
	if i.Socket == "" && plan != nil {
		socket = plan.Socket
	}
	containerd, err := i.connect(socket)
	if err != nil {
		return nil, nil, err
	}
	p, err := containerd.Process(ctx)
	switch {
	case err != nil && refused == nil:
		// An image may be prepared on a machine whose containerd does not run.
		i.Log.Warn("containerd does not answer", "socket", socket, "error", err)
	case err == nil && asked && p.Config != "":
		plan, refused = layout.Make(c.before(), kind, p.Config)
	}
	if refused != nil {
		return nil, nil, refused
	}
	c.process, plan.Socket = p.ID, socket
	return plan, containerd, nil
}

func (i *Installer) connect(socket string) (Runtime, error) {
	outside, err := i.Tree.Outside(socket)
	if err != nil {
		return nil, err
	}
	return i.Connect(outside), nil
}

// apply has the plan's files stand on the node, and no others of ours.
func (c *change) apply(plan *layout.Plan, shim []byte) error {
	wanted := []string{layout.Shim, layout.Options}
	// The configuration comes last: it names the others.
	if err := c.put(layout.Shim, shim, executable, false); err != nil {
		return err
	}
	if plan.RuncOptions != nil {
		if err := c.put(layout.Options, plan.RuncOptions, publicFile, false); err != nil {
			return err
		}
	}
	for _, f := range plan.Config {
		if err := c.put(f.Path, f.Data, publicFile, true); err != nil {
			return err
		}
		wanted = append(wanted, f.Path)
	}
	// What an earlier layout of this node wanted, and this one does not.
	for _, r := range slices.Clone(c.journal.Files) {
		if slices.Contains(wanted, r.Path) && (r.Path != layout.Options || plan.RuncOptions != nil) {
			continue
		}
		if err := errors.Join(c.remember(r.Path), c.save()); err != nil {
			return err
		}
		if err := c.revert(r); err != nil {
			return err
		}
		c.journal.drop(r.Path)
	}
	return c.save()
}

func (i *Installer) report(c *change, notes []string) {
	for _, p := range c.changed {
		i.Log.Info("changed", "file", p)
	}
	if len(c.changed) == 0 {
		i.Log.Info("all files are in place")
	}
	for _, n := range slices.Concat(notes, c.notes) {
		i.Log.Warn(n)
	}
}
