package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/shim/install/edit"
	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

// trial is an installation with which no sandbox has run yet, and what there was before it.
// A node where nothing worked before has nothing to go back to: then all is empty.
type trial struct {
	head
	Files []former `json:"files,omitempty"`
}

// former is a file that the trial has changed.
type former struct {
	Path string `json:"path"`
	// Was is the file as it stood, with Headstart's part; nil: it was not there.
	Was *original `json:"was"`
	// Record is the journal's of that time, nil if the file was none of Headstart's.
	Record *record `json:"record"`
}

// begin makes an installation a trial. One that was interrupted goes on: what there was
// before it is still what to go back to.
func (c *change) begin(h head) {
	if c.journal.Trial == nil {
		c.journal.Trial = &trial{head: c.journal.head}
	}
	c.journal.head = h
}

// remember keeps the file at p, which is about to be changed, for the case that the trial
// fails. The caller saves the journal.
func (c *change) remember(p string) error {
	t := c.journal.Trial
	if t == nil || t.Installed == "" || slices.ContainsFunc(t.Files, func(f former) bool { return f.Path == p }) {
		return nil
	}
	f := former{Path: p}
	now, err := c.tree.Optional(p, maxFile)
	if err != nil {
		return err
	}
	if r := c.journal.find(p); r != nil {
		f.Record = new(*r)
		if !stands(now, r) {
			// Somebody has broken what was there: it is no use to go back to it.
			*t = trial{}
			return nil
		}
	}
	if now != nil {
		f.Was = &original{hash(now.Data), now.Mode, now.UID, now.GID}
		if err := c.keep(now); err != nil {
			return err
		}
	}
	t.Files = append(t.Files, f)
	return nil
}

// stands tells whether what the record says is there. Others may have edited their part.
func stands(now *tree.File, r *record) bool {
	if now == nil {
		return false
	}
	if hash(now.Data) == r.After || ours(r.Path) {
		return hash(now.Data) == r.After
	}
	_, found, err := edit.Strip(now.Data)
	return err == nil && found
}

// passed ends a trial with which a sandbox has run.
func (c *change) passed() error {
	c.journal.Trial = nil
	if err := c.save(); err != nil {
		return err
	}
	return c.forget()
}

// forget removes kept files that no record names.
func (c *change) forget() error {
	names, err := c.tree.List(stateDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		sum, kept := strings.CutPrefix(name, originalPrefix)
		if !kept || slices.ContainsFunc(c.journal.Files, func(r record) bool { return r.Before != nil && r.Before.SHA256 == sum }) {
			continue
		}
		if err := c.tree.Remove(path.Join(stateDir, name)); err != nil {
			return err
		}
	}
	return nil
}

// giveUp has a trial that failed because of cause end with the version that there was
// before, if that worked. The error says how it ended.
func (i *Installer) giveUp(ctx context.Context, c *change, containerd Runtime, watched bool, cause error) error {
	t := c.journal.Trial
	if t.Installed == "" || len(t.Files) == 0 {
		return cause
	}
	// Also one that is interrupted has to know who has read what is put back now.
	if now, err := containerd.Process(context.WithoutCancel(ctx)); err == nil {
		c.process = now.ID
	}
	if err := c.goBack(); err != nil {
		return errors.Join(cause, fmt.Errorf("putting version %s back: %w", t.Installed, err))
	}
	i.Log.Warn("the previous version has been put back", "version", t.Installed)
	cause = fmt.Errorf("%w; version %s, which was there before, has been put back", cause, t.Installed)
	// The journal says that a restart is pending.
	if ctx.Err() != nil || !i.Restart && c.unread() {
		return cause
	}
	return errors.Join(cause, i.restart(ctx, c, containerd, watched))
}

// goBack has all files stand as they did before the trial. If one cannot, it is still one.
func (c *change) goBack() error {
	t := c.journal.Trial
	var failed []error
	// The configuration, which names the others, came last and is the first to go.
	for _, f := range slices.Backward(t.Files) {
		failed = append(failed, c.restore(f))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	c.journal.head = t.head
	return c.passed()
}

// restore has one file stand as it did before the trial.
func (c *change) restore(f former) error {
	was, err := c.before().original(&record{Path: f.Path, Before: f.Was})
	if err != nil {
		return err
	}
	now, err := c.tree.Optional(f.Path, maxFile)
	if err != nil {
		return err
	}
	same, err := sameRest(f.Path, now, was)
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%s was changed by somebody else meanwhile", f.Path)
	}
	r := c.journal.find(f.Path)
	if config := r != nil && r.Config || f.Record != nil && f.Record.Config; config && !equal(now, was) {
		c.journal.Restart = &c.process
	}
	if f.Record != nil {
		c.journal.set(*f.Record)
	}
	if err := c.save(); err != nil {
		return err
	}
	switch {
	case was != nil:
		err = c.tree.Write(f.Path, *was)
	case now != nil:
		err = c.tree.Remove(f.Path)
	}
	if err == nil && f.Record == nil {
		c.journal.drop(f.Path) // saved with what comes next
	}
	return err
}

// sameRest tells whether two states of a file are the same but for Headstart's part.
func sameRest(p string, a, b *tree.File) (bool, error) {
	if ours(p) {
		return true, nil
	}
	var rests [2][]byte
	for n, f := range []*tree.File{a, b} {
		if f == nil {
			continue
		}
		rest, _, err := edit.Strip(f.Data)
		if err != nil {
			return false, fmt.Errorf("%s: %w", p, err)
		}
		if !layout.Bare(rest) {
			rests[n] = rest
		}
	}
	return bytes.Equal(rests[0], rests[1]), nil
}

func equal(a, b *tree.File) bool {
	return a == nil && b == nil || a != nil && b != nil && bytes.Equal(a.Data, b.Data)
}
