// Package buffer keeps inputs while they arrive and until the last reader is done: in
// memory, on disk or in a Redis, bounded in bytes, and shared fairly between functions and namespaces.
package buffer

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"sync"

	"github.com/headstart-mesh/headstart/shim/fair"
)

// Unknown is the size of an entry that nobody knows before all of it is there.
const Unknown = -1

// entryID is what an entry's identifier, and so its file's name, looks like.
var entryID = regexp.MustCompile(`^[0-9a-f]{32}$`)

var (
	errClosed = errors.New("the buffer is closed")
	// errReleased is what readers get of an entry whose owner has let go of it.
	errReleased = fmt.Errorf("the buffer entry was released: %w", fs.ErrClosed)
)

// Buffer is a set of entries. Its methods may be called at the same time.
type Buffer struct {
	quota Quota
	tiers []*tier

	mu        sync.Mutex
	entries   map[string]*Entry // nil when closed
	functions map[string]*usage // those that have entries
	share     *fair.Share       // of entriesMost
	evict     func(tier string, need int64) (unpaid int64)
}

// entriesMost is how many entries namespaces share, with those that functions have kept open: each costs
// a descriptor. It is as many as a node has inputs at a time.
const entriesMost = 1024

// New returns a buffer over tiers: an entry gets its room in the first one that has it.
// The buffer closes their media. No function takes more than the quota.
func New(quota Quota, tiers ...Tier) *Buffer {
	b := &Buffer{evict: func(_ string, need int64) int64 { return need }, quota: quota, entries: map[string]*Entry{}, functions: map[string]*usage{}, share: fair.NewShare(entriesMost)}
	for i, t := range tiers {
		b.tiers = append(b.tiers, &tier{Tier: t, index: i, share: fair.NewShare(t.Limit)})
	}
	return b
}

// Open returns a buffer of at most limit bytes on one disk, in the directory dir: see
// OpenFiles.
func Open(dir string, limit int64) (*Buffer, error) {
	files, err := OpenFiles(dir)
	if err != nil {
		return nil, err
	}
	return New(Quota{}, Tier{Name: "disk", Limit: limit, Medium: files}), nil
}

// Create reserves an entry of size bytes, for the function of the given name. id is 32
// lower-case hexadecimal digits and names one entry at a time. An entry of size Unknown
// gets its room as it is written. With no room left the error is BufferFull, or BufferQuota
// if the function has too much already, or BufferTooSmall if it never will: see IsFull.
func (b *Buffer) Create(id, function string, size int64) (*Entry, error) {
	if !entryID.MatchString(id) || size < Unknown {
		return nil, fmt.Errorf("creating a buffer entry %.40q of %d bytes: bad identifier or size", id, size)
	}
	e := &Entry{buffer: b, id: id, size: size, owners: 1, linking: make(chan struct{}, 1)}
	if err := b.add(e, function); err != nil {
		return nil, err
	}
	if err := e.reserve(); err != nil {
		b.remove(e)
		return nil, err
	}
	return e, nil
}

func (b *Buffer) add(e *Entry, function string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.entries == nil:
		return errClosed
	case b.entries[e.id] != nil:
		return fmt.Errorf("creating a buffer entry: there is one %s", e.id)
	}
	u, err := b.admit(function)
	if err != nil {
		return err
	}
	e.function = function
	b.functions[function] = u
	b.countEntries(function, u, 1)
	b.entries[e.id] = e
	return nil
}

// admit returns what a function has, if it may have another entry. The caller holds the lock.
func (b *Buffer) admit(function string) (*usage, error) {
	u := b.functions[function]
	if u == nil {
		u = &usage{}
	}
	if b.quota.Entries > 0 && u.entries >= b.quota.Entries {
		return nil, overQuota(fmt.Sprintf("the function has %d inputs in the node's buffer, or keeps them open, as many as it may", u.entries))
	}
	if b.quota.Fair && b.share.Left(function) == 0 {
		return nil, Full("the node's input buffer holds " + b.share.Full(function, "inputs"))
	}
	return u, nil
}

// remove lets go of an entry that nobody holds any more.
func (b *Buffer) remove(e *Entry) {
	e.clear() // first: its identifier may come again
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.entries == nil {
		return
	}
	delete(b.entries, e.id)
	if !e.kept {
		b.countEntries(e.function, b.functions[e.function], -1)
	}
}

// Close fails every entry and removes it, whoever still holds it, but for those with a note.
func (b *Buffer) Close() error {
	b.mu.Lock()
	entries := b.entries
	b.entries = nil
	b.mu.Unlock()
	if entries == nil { // it is closed already
		return nil
	}
	for _, e := range entries {
		e.Fail(errClosed)
		if !e.stay() {
			e.clear()
		}
	}
	var errs []error
	for _, t := range b.tiers {
		errs = append(errs, t.Medium.Close())
	}
	return errors.Join(errs...)
}
