package install

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/headstart-mesh/headstart/shim/install/layout"
	"github.com/headstart-mesh/headstart/shim/install/tree"
)

const (
	stateDir    = layout.Home + "/state"
	journalPath = stateDir + "/journal.json"
	// journalVersion grows when an older installer could not undo what a newer one did.
	journalVersion = 1
	// Only root reads what was in other programs' files.
	privateDir, privateFile fs.FileMode = 0o700, 0o600
	publicDir, publicFile   fs.FileMode = 0o755, 0o644
	// maxJournal and maxFile bound, in bytes, what is read from the node.
	maxJournal, maxFile = 1 << 20, 256 << 20
	// originalPrefix begins the names of files that are kept.
	originalPrefix = "original-"
	// nursery is where the first journal is made, beside the first directory that is new:
	// it comes into being together with that directory, or not at all.
	nursery = ".headstart.tmp"
)

// journal is what there was before, and what was put there. It is written before each
// change, so that an interrupted one is known.
type journal struct {
	Format int `json:"format"`
	head
	// Top is the highest directory made; it has the journal itself in it.
	Top string `json:"top"`
	// Dirs are the other directories made, outermost first.
	Dirs  []string `json:"dirs,omitempty"`
	Files []record `json:"files,omitempty"`
	// Restart is the containerd that has not yet read its configuration as it is now, nil
	// for none. It is empty if none ran.
	Restart *string `json:"restart,omitempty"`
	// Trial is the installation that no sandbox has verified yet, nil for none.
	Trial *trial `json:"trial,omitempty"`
}

// head is what is installed.
type head struct {
	Installed string      `json:"installed"` // the version of Headstart
	Layout    layout.Kind `json:"layout"`
	Socket    string      `json:"socket"`
	// Watched is whether the distribution restarts containerd by itself.
	Watched bool `json:"watched,omitempty"`
}

// record is one file.
type record struct {
	Path   string    `json:"path"`
	Before *original `json:"before"` // nil: it was not there
	After  string    `json:"after"`  // SHA-256 of what was put there
	Config bool      `json:"config"` // containerd reads it when it starts
}

// original is a file as it was; its bytes are in a file named by their SHA-256.
type original struct {
	SHA256 string      `json:"sha256"`
	Mode   fs.FileMode `json:"mode"`
	UID    int         `json:"uid"`
	GID    int         `json:"gid"`
}

func hash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func originalPath(sum string) string { return path.Join(stateDir, originalPrefix+sum) }

// openJournal returns the node's journal, nil if nothing is installed.
func openJournal(t *tree.Tree) (*journal, error) {
	f, err := t.Optional(journalPath, maxJournal)
	if err != nil || f == nil {
		return nil, err
	}
	var j journal
	if err := json.Unmarshal(f.Data, &j); err != nil {
		return nil, fmt.Errorf(
			"%s: %w; restore it from a copy, or remove %s after undoing by hand what is marked `# headstart: begin`",
			journalPath, err, layout.Home,
		)
	}
	if j.Format > journalVersion {
		return nil, fmt.Errorf("%s is of Headstart %s, which is newer than this installer; use that version", journalPath, j.Installed)
	}
	return &j, nil
}

// newJournal makes the first journal, with the directories that it needs, in one step.
func newJournal(t *tree.Tree) (*journal, error) {
	j := &journal{Format: journalVersion}
	if t.Exists(layout.Home) { // somebody has removed the journal alone
		if !t.Exists(stateDir) {
			if err := t.Mkdir(stateDir, privateDir); err != nil {
				return nil, err
			}
		}
		return j, j.save(t)
	}
	j.Top = layout.Home
	for !t.Exists(path.Dir(j.Top)) {
		j.Top = path.Dir(j.Top)
	}
	temp := path.Join(path.Dir(j.Top), nursery)
	// What is below the directory that appears: from the top on to the journal's own.
	var below []string
	for p := stateDir; p != path.Dir(j.Top); p = path.Dir(p) {
		below = append(below, p)
	}
	for _, p := range slices.Backward(below) {
		mode := publicDir
		if p == stateDir {
			mode = privateDir
		}
		if err := t.Mkdir(temp+p[len(j.Top):], mode); err != nil {
			return nil, err
		}
	}
	text, err := j.encode()
	if err != nil {
		return nil, err
	}
	if err := t.Write(temp+journalPath[len(j.Top):], tree.File{Data: text, Mode: privateFile}); err != nil {
		return nil, err
	}
	return j, t.Rename(temp, j.Top)
}

// nurseries are all places where newJournal or removal may have been interrupted.
func nurseries() []string {
	all := []string{path.Join(layout.Home, nursery)}
	for p := layout.Home; p != "/"; p = path.Dir(p) {
		all = append(all, path.Join(path.Dir(p), nursery))
	}
	return all
}

func (j *journal) encode() ([]byte, error) {
	text, err := json.MarshalIndent(j, "", "  ")
	return append(text, '\n'), err
}

func (j *journal) save(t *tree.Tree) error {
	text, err := j.encode()
	if err != nil {
		return err
	}
	return t.Write(journalPath, tree.File{Data: text, Mode: privateFile})
}

// find returns the record of a path, nil if there is none.
func (j *journal) find(p string) *record {
	for i := range j.Files {
		if j.Files[i].Path == p {
			return &j.Files[i]
		}
	}
	return nil
}

// set replaces a path's record or adds one.
func (j *journal) set(r record) {
	if old := j.find(r.Path); old != nil {
		*old = r
		return
	}
	j.Files = append(j.Files, r)
}

func (j *journal) drop(p string) {
	j.Files = slices.DeleteFunc(j.Files, func(r record) bool { return r.Path == p })
}
