package buffer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/staging"
)

// linkName is a file name that is one path component, and no hidden one.
var linkName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$`)

// ErrNoFile says that an entry cannot be a file: its bytes are where the sandbox does not
// see them, and the disk has no room for a copy.
var ErrNoFile = errors.New("the buffer entry is not a file that the sandbox can see")

// Link gives the complete entry a name in a sandbox. It exists from then on with all its
// bytes and mode 0444. Nothing is copied but an entry whose medium the sandbox does not see,
// once, to the disk. The name keeps the bytes where they are: Used is true as long as it is
// removed before Release.
func (e *Entry) Link(ctx context.Context, to *staging.Dir, name string) error {
	if !linkName.MatchString(name) {
		return fmt.Errorf("linking a buffer entry: %.130q is not a file name", name)
	}
	if err := e.hold(); err != nil {
		return err
	}
	defer e.drop()
	if err := e.link(ctx, to, name); err != nil {
		return fmt.Errorf("linking a buffer entry as %s: %w", name, err)
	}
	return nil
}

// hold makes the caller an owner of the complete entry.
func (e *Entry) hold() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.complete || e.owners == 0 {
		return errors.New("linking a buffer entry that is not complete")
	}
	e.owners++
	return nil
}

func (e *Entry) link(ctx context.Context, to *staging.Dir, name string) error {
	select {
	case e.linking <- struct{}{}:
		defer func() { <-e.linking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	whole, copied := e.files()
	err := place(whole, to, name)
	if !errors.Is(err, ErrNoFile) && !errors.Is(err, unix.EXDEV) {
		return err
	}
	disk := e.buffer.fileTier()
	if disk == nil || whole.tier == disk { // it would be the same again
		return err
	}
	if copied.content == nil {
		if copied, err = e.copyTo(ctx, disk); err != nil {
			return err
		}
	}
	return place(copied, to, name)
}

// files are the part that is the whole entry, and the copy of it. Either may be missing.
func (e *Entry) files() (whole, copied part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.parts) == 1 {
		whole = e.parts[0]
	}
	return whole, e.copied
}

// place gives what is one file a name in the sandbox.
func place(p part, to *staging.Dir, name string) error {
	f, ok := p.content.(*file)
	if !ok {
		return ErrNoFile
	}
	return to.Place(name, func(dir *os.Root) error { return f.link(dir, name) })
}

// copyTo copies the entry to a tier of files.
func (e *Entry) copyTo(ctx context.Context, t *tier) (part, error) {
	p := part{tier: t}
	e.mu.Lock()
	err := e.enlarge(&p, NewID(), e.size, e.size)
	if err == nil {
		e.copied = p
	}
	e.mu.Unlock()
	if IsFull(err) {
		return part{}, fmt.Errorf("%w: %w", ErrNoFile, err)
	}
	if err != nil {
		return part{}, err
	}
	r := e.NewReader(ctx)
	_, err = io.Copy(io.NewOffsetWriter(p.content, 0), r)
	if err := errors.Join(err, r.Close()); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.copied.content != nil { // Close may have removed it
			e.discard(e.copied)
		}
		e.copied = part{}
		return part{}, fmt.Errorf("copying it to the disk: %w", err)
	}
	return p, nil
}

// NewID returns an identifier for an entry that is nobody else's.
func NewID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return hex.EncodeToString(id)
}
