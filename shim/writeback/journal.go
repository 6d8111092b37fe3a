package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/nodeapi/writes"
)

const (
	suffix    = writes.Record
	temporary = ".new"
)

// journal keeps writes until the store has them: the content in a file that is named by the write, and the record beside it.
type journal struct {
	path string
	dir  *os.File // locked
	once sync.Once
}

// errLocked says that another process has the journal.
var errLocked = errors.New("another process has it")

// openJournal opens the directory, which it makes if there is none, and returns the writes in it. One process at a time
// has it. damaged are writes whose record cannot be read: they stay.
func openJournal(path string) (j *journal, found []record, damaged []error, err error) {
	fail := func(err error) (*journal, []record, []error, error) {
		if j != nil {
			j.close()
		}
		return nil, nil, nil, fmt.Errorf("opening the journal of writes: %w", err)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fail(err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	j = &journal{path: path, dir: dir}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errLocked
		}
		return fail(fmt.Errorf("locking %s: %w", path, err))
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fail(err)
	}
	known := map[string]bool{}
	for _, name := range names {
		id, is := strings.CutSuffix(name, suffix)
		if !is {
			continue
		}
		known[id] = true
		var r record
		b, err := os.ReadFile(filepath.Join(path, name))
		if err == nil {
			r, err = parse(b)
		}
		if err == nil && r.ID != id {
			err = fmt.Errorf("it is of write %s", r.ID)
		}
		if err != nil {
			damaged = append(damaged, fmt.Errorf("%s: %w", name, err))
			continue
		}
		found = append(found, r)
	}
	for _, name := range names { // what has no record was not acknowledged
		id, _ := strings.CutSuffix(name, suffix+temporary)
		if isID(id) && !known[name] {
			if err := os.Remove(filepath.Join(path, name)); err != nil {
				return fail(err)
			}
		}
	}
	return j, found, damaged, nil
}

func (j *journal) close() { j.once.Do(func() { _ = j.dir.Close() }) } // it was only read from

func (j *journal) content(id string) string { return filepath.Join(j.path, id) }

// create makes the file of a write's content, of so many bytes, for which there is room.
func (j *journal) create(id string, size int64) (*os.File, error) {
	f, err := os.OpenFile(j.content(id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil || size == 0 {
		return f, err
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return nil, errors.Join(fmt.Errorf("making room for a write: %w", err), f.Close(), os.Remove(f.Name()))
	}
	return f, nil
}

// add has a write durable, whose content is in its file.
func (j *journal) add(r record, content *os.File) error {
	b, err := r.bytes()
	if err != nil {
		return err
	}
	info, err := content.Stat()
	if err == nil && info.Size() != r.Size {
		err = fmt.Errorf("the content is %d bytes, and not %d", info.Size(), r.Size)
	}
	if err == nil {
		err = content.Sync()
	}
	if err == nil {
		err = j.note(r.ID, b)
	}
	if err != nil {
		return fmt.Errorf("noting a write: %w", err)
	}
	return nil
}

// note writes a record, in place of an earlier one. It is durable afterwards, as is the name of the content.
func (j *journal) note(id string, b []byte) error {
	path := filepath.Join(j.path, id+suffix)
	f, err := os.OpenFile(path+temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+temporary, path)
	}
	if err != nil {
		return err
	}
	return j.dir.Sync()
}

// abandon notes that a write is not to be uploaded.
func (j *journal) abandon(r record) error {
	r.Abandoned, r.Size = true, 0
	b, err := r.bytes()
	if err == nil {
		err = j.note(r.ID, b)
	}
	if err != nil {
		return fmt.Errorf("noting that a write is abandoned: %w", err)
	}
	_ = os.Remove(j.content(r.ID)) // else it goes with the record
	return nil
}

// remove forgets a write. If a power cut brings it back, its marker is not there, and it is not uploaded.
func (j *journal) remove(id string) {
	for _, name := range []string{id + suffix, id + suffix + temporary, id} {
		if err := os.Remove(filepath.Join(j.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // the next start tries again
		}
	}
}
