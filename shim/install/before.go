package install

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/headstart-mesh/headstart/shim/install/edit"
	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

// before is the node as it would be without Headstart. Planning from that, and not from
// what is there, makes a second installation like the first.
type before struct {
	tree    *tree.Tree
	journal *journal
}

// Read is layout.View's.
func (b before) Read(p string) ([]byte, error) {
	f, err := b.file(p, layout.MaxConfig)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("reading %s: %w", p, fs.ErrNotExist)
	}
	return f.Data, nil
}

// Exists is layout.View's.
func (b before) Exists(p string) bool { return b.tree.Exists(p) }

// List is layout.View's.
func (b before) List(dir string) ([]string, error) {
	names, err := b.tree.List(dir)
	var all []string
	for _, name := range names {
		if p := path.Join(dir, name); b.journal.find(p) != nil || strings.HasPrefix(name, layout.Handler) {
			if f, err := b.file(p, layout.MaxConfig); err == nil && f == nil {
				continue
			}
		}
		all = append(all, name)
	}
	return all, err
}

// file returns the file at p as it would be, nil if it would not be there.
func (b before) file(p string, limit int64) (*tree.File, error) {
	f, err := b.tree.Optional(p, limit)
	if err != nil || f == nil {
		return nil, err
	}
	r := b.journal.find(p)
	if r != nil && (hash(f.Data) == r.After || ours(p)) {
		return b.original(r)
	}
	if ours(p) {
		return f, nil
	}
	rest, found, err := edit.Strip(f.Data)
	if err != nil {
		return nil, fmt.Errorf(
			"%s: %w; restore the line, or remove everything from the first line on that is not the file's own", p, err,
		)
	}
	// Without a record the journal is lost. A file of which nothing is left was ours.
	if found && layout.Bare(rest) && (r == nil || r.Before == nil) {
		return nil, nil
	}
	f.Data = rest
	return f, nil
}

// original is the file that a record keeps, nil if there was none.
func (b before) original(r *record) (*tree.File, error) {
	if r.Before == nil {
		return nil, nil
	}
	f, err := b.tree.Read(originalPath(r.Before.SHA256), maxFile)
	if err != nil {
		return nil, fmt.Errorf("the original of %s: %w", r.Path, err)
	}
	if hash(f.Data) != r.Before.SHA256 {
		return nil, fmt.Errorf(
			"%s is damaged; restore the original of %s by hand, and remove %s", originalPath(r.Before.SHA256), r.Path,
			layout.Home,
		)
	}
	return &tree.File{Data: f.Data, Mode: r.Before.Mode, UID: r.Before.UID, GID: r.Before.GID}, nil
}

// ours tells whether p is in a directory of Headstart's own, where nobody else edits.
func ours(p string) bool { return strings.HasPrefix(p, layout.Home+"/") }
