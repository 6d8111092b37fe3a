package install

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/shim/install/edit"
	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

// change is one installation or removal on a locked node.
type change struct {
	tree    *tree.Tree
	journal *journal
	// process is the containerd that runs, empty if none does.
	process string
	// changed are the files that are different now, notes what people should know.
	changed, notes []string
}

func (c *change) before() before { return before{c.tree, c.journal} }

func (c *change) save() error { return c.journal.save(c.tree) }

// tidy removes what an interrupted change has left half-made.
func (c *change) tidy() error {
	for _, p := range nurseries() {
		if err := c.tree.RemoveAll(p); err != nil {
			return err
		}
	}
	if c.journal == nil {
		if names, err := c.tree.List(layout.Home); err != nil || len(names) > 0 {
			return err
		}
		return c.tree.Remove(layout.Home)
	}
	for _, p := range append([]string{journalPath}, c.paths()...) {
		if err := c.tree.Discard(p); err != nil {
			return err
		}
	}
	return nil
}

func (c *change) paths() []string {
	var all []string
	for _, r := range c.journal.Files {
		all = append(all, r.Path)
	}
	return all
}

// put has data stand at p. A file that is there keeps its mode and owner; a new one gets
// mode, and root. config says that containerd reads it when it starts.
func (c *change) put(p string, data []byte, mode fs.FileMode, config bool) error {
	was, err := c.before().file(p, maxFile)
	if err != nil {
		return err
	}
	want := tree.File{Data: data, Mode: mode}
	r := record{Path: p, After: hash(data), Config: config}
	if was != nil {
		want.UID, want.GID = was.UID, was.GID
		r.Before = &original{hash(was.Data), was.Mode, was.UID, was.GID}
		if err := c.keep(was); err != nil {
			return err
		}
	}
	now, err := c.tree.Optional(p, maxFile)
	if err != nil {
		return err
	}
	there := now != nil
	if there && !ours(p) {
		want.Mode, want.UID, want.GID = now.Mode, now.UID, now.GID
	}
	if there && was != nil && !ours(p) && edit.Same(now.Data, data) {
		// Others have added something behind our part: it may stay where it is.
		data, r.After = now.Data, hash(now.Data)
	}
	same := there && bytes.Equal(now.Data, data) && now.Mode == want.Mode
	if old := c.journal.find(p); same && old != nil && old.After == r.After {
		return nil
	}
	if err := c.remember(p); err != nil {
		return err
	}
	made := c.missing(path.Dir(p))
	c.journal.Dirs = append(c.journal.Dirs, slices.DeleteFunc(slices.Clone(made), func(dir string) bool {
		return slices.Contains(c.journal.Dirs, dir) || c.journal.Top != "" && strings.HasPrefix(dir+"/", c.journal.Top+"/")
	})...)
	c.journal.set(r)
	if config && !same {
		c.journal.Restart = &c.process
	}
	if err := c.save(); err != nil || same {
		return err
	}
	for _, dir := range made {
		if err := c.tree.Mkdir(dir, publicDir); err != nil {
			return err
		}
	}
	c.changed = append(c.changed, p)
	return c.tree.Write(p, want)
}

// keep stores a file's bytes as an original.
func (c *change) keep(f *tree.File) error {
	p := originalPath(hash(f.Data))
	if kept, err := c.tree.Read(p, maxFile); err == nil && bytes.Equal(kept.Data, f.Data) {
		return nil
	}
	return c.tree.Write(p, tree.File{Data: f.Data, Mode: privateFile})
}

// missing are the directories that have to be made for dir, outermost first.
func (c *change) missing(dir string) []string {
	var all []string
	for ; !c.tree.Exists(dir); dir = path.Dir(dir) {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}

// revert puts a file back as it was. What others have changed in it since stays.
func (c *change) revert(r record) error {
	was, err := c.before().original(&r)
	if err != nil {
		return err
	}
	now, err := c.tree.Optional(r.Path, maxFile)
	if err != nil {
		return err
	}
	if now == nil {
		if was != nil {
			c.note("%s was removed by others, and stays removed", r.Path)
		}
		return nil
	}
	sum := hash(now.Data)
	if sum != r.After && !ours(r.Path) {
		if r.Before != nil && sum == r.Before.SHA256 {
			return nil // not yet changed, or put back already
		}
		rest, found, err := edit.Strip(now.Data)
		if err != nil {
			return fmt.Errorf("%s: %w; remove Headstart's part by hand", r.Path, err)
		}
		if !found {
			c.note("%s was changed by others, and contains nothing of Headstart's", r.Path)
			return nil
		}
		if !layout.Bare(rest) || r.Before != nil {
			c.note("%s was changed by others since; only Headstart's part is removed", r.Path)
			now.Data, was = rest, now
		}
	}
	if r.Config {
		c.journal.Restart = &c.process
		if err := c.save(); err != nil {
			return err
		}
	}
	c.changed = append(c.changed, r.Path)
	if was == nil {
		return c.tree.Remove(r.Path)
	}
	return c.tree.Write(r.Path, *was)
}

func (c *change) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// end removes the directories made, and the journal with all that it is about.
func (c *change) end() error {
	for _, dir := range slices.Backward(c.journal.Dirs) {
		if err := c.removeEmpty(dir); err != nil {
			return err
		}
	}
	top := c.journal.Top
	if top == "" {
		// Headstart's directory was there before the journal: remove what is known.
		if err := c.discard(stateDir, path.Join(layout.Home, nursery)); err != nil {
			return err
		}
		return c.removeEmpty(layout.Home)
	}
	// Other programs may have come to use a directory that was Headstart's alone.
	for below := layout.Home; below != top; below = path.Dir(below) {
		names, err := c.tree.List(path.Dir(below))
		if err != nil {
			return err
		}
		if len(names) > 1 {
			c.note("%s stays: it contains other files", path.Dir(below))
			top = below
			break
		}
	}
	return c.discard(top, path.Join(path.Dir(top), nursery))
}

// discard removes a directory as a whole or not at all: what is left under the other name
// after an interruption is tidied up by the next run.
func (c *change) discard(dir, as string) error {
	if err := c.tree.Rename(dir, as); err != nil {
		return err
	}
	return c.tree.RemoveAll(as)
}

func (c *change) removeEmpty(dir string) error {
	names, err := c.tree.List(dir)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		c.note("%s stays: it contains other files", dir)
		return nil
	}
	return c.tree.Remove(dir)
}
