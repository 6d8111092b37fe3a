package buffer

import (
	"context"
	"fmt"
	"io"
	"math"

	"github.com/headstart-mesh/headstart/shim/fair"
)

// Medium is where a tier has the bytes of its entries. Its methods may be called at the same
// time.
type Medium interface {
	// Create makes a place for bytes. id is 32 lower-case hexadecimal digits, and that of
	// no other place that is there.
	Create(id string) (Content, error)
	// Close lets go of the medium, when all places are removed.
	Close() error
}

// Content is the bytes of an entry, or a stretch of them, in a medium.
type Content interface {
	// WriteAt writes within the size; it may be called at the same time as all others.
	// When the medium turns out to be full the error is a Full, here and from Resize.
	io.WriterAt
	// Resize makes room for size bytes, or gives back what is beyond.
	Resize(size int64) error
	// Open returns a reader that begins at a byte. Nobody asks it for bytes that are not
	// written. Its Close may be called at any time.
	Open(ctx context.Context, from int64) (io.ReadCloser, error)
	// Remove is called once, when no reader is open. It does not wait for what takes long. It calls freed
	// when the room is free: later for what others still have open.
	Remove(freed func())
}

// Tier is a medium as part of a buffer.
type Tier struct {
	// Name is for the operator: memory, disk or redis.
	Name string
	// Limit is how many bytes may be in it at a time.
	Limit int64
	// Largest is how many of them one entry may take, 0 for all: a large one shall not
	// keep many small ones out.
	Largest int64
	// Spare is how many percent of its file system stay free beside what is kept.
	Spare  int64
	Medium Medium
}

// TierUsage is what is in a tier.
type TierUsage struct {
	Name string
	// Used and Limit are in bytes; Used is what is reserved, arrived or not.
	Used, Limit int64
	Entries     int
	// Kept is what nobody uses, in bytes and entries: see Keep. Used does not contain it.
	Kept        int64
	KeptEntries int
	// Keeps: it can keep entries.
	Keeps bool
}

// tier is a Tier with what is in it, which the buffer's lock guards.
type tier struct {
	Tier
	index   int
	share   *fair.Share
	entries int
	// kept is what nobody uses, and owed how much of it is about to be evicted.
	kept, owed  int64
	keptEntries int
}

func (t *tier) largest() int64 {
	if t.Largest > 0 {
		return t.Largest
	}
	return math.MaxInt64
}

// Tiers returns what is in each tier, in their order.
func (b *Buffer) Tiers() []TierUsage {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]TierUsage, 0, len(b.tiers))
	for _, t := range b.tiers {
		_, files := t.Medium.(*Files)
		all = append(all, TierUsage{Keeps: files, Name: t.Name, Used: t.share.Used(), Limit: t.Limit, Entries: t.entries,
			Kept: t.kept, KeptEntries: t.keptEntries})
	}
	return all
}

// Used returns how many bytes the entries take, arrived or not.
func (b *Buffer) Used() int64 {
	var used int64
	for _, t := range b.Tiers() {
		used += t.Used
	}
	return used
}

// after returns the tiers behind t, all of them if it is nil.
func (b *Buffer) after(t *tier) []*tier {
	if t == nil {
		return b.tiers
	}
	return b.tiers[t.index+1:]
}

// fileTier is the last one whose entries are files: the disk, if there is one.
func (b *Buffer) fileTier() *tier {
	for i := len(b.tiers) - 1; i >= 0; i-- {
		if _, ok := b.tiers[i].Medium.(*Files); ok {
			return b.tiers[i]
		}
	}
	return nil
}

// most is how many bytes an entry of that size could have if there were no others: one of
// Unknown size may go through all tiers.
func (b *Buffer) most(size int64) int64 {
	var most int64
	for _, t := range b.tiers {
		room := min(t.Limit, t.largest())
		if b.quota.Fair {
			room = min(room, fair.Most(t.Limit))
		}
		if size == Unknown {
			most += room
		} else {
			most = max(most, room)
		}
	}
	if b.quota.Bytes > 0 {
		most = min(most, b.quota.Bytes)
	}
	return most
}

// take reserves room in a tier for an entry that has some bytes there: as many as are
// wanted, or as there are, but not less than it needs. What nobody uses goes for it.
func (b *Buffer) take(e *Entry, t *tier, has, need, want int64) (int64, error) {
	room, short, err := b.reserve(e, t, has, need, want)
	if err != nil || short == 0 {
		return room, err
	}
	if b.makeRoom(t, short) {
		return room, nil
	}
	b.giveBack(e, t, room, 0)
	return 0, noRoom(need)
}

// makeRoom evicts so many bytes that a tier keeps, and that it counts as owed already. It is false if the tier still
// has too much: somebody has begun to use what was kept.
func (b *Buffer) makeRoom(t *tier, need int64) bool {
	unpaid := b.evict(t.Name, need)
	b.mu.Lock()
	defer b.mu.Unlock()
	t.owed -= unpaid
	return unpaid == 0 || t.over() <= 0
}

// over is by how much the tier has more than it may, besides what is about to go. The caller holds the buffer's lock.
func (t *tier) over() int64 { return t.share.Used() + t.kept - t.owed - t.Limit }

// reserve counts the room that take takes, and tells how much has to be evicted for it.
func (b *Buffer) reserve(e *Entry, t *tier, has, need, want int64) (room, short int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.functions[e.function]
	if b.entries == nil || u == nil {
		return 0, 0, errClosed
	}
	if room, err = b.fit(e.function, u, t, has, need, want); err != nil {
		return 0, 0, err
	}
	b.charge(e.function, t, room, 0)
	short = max(0, t.over())
	t.owed += short
	return room, short, nil
}

// fit is how much room a function gets in a tier. The caller holds the lock.
func (b *Buffer) fit(function string, u *usage, t *tier, has, need, want int64) (int64, error) {
	free := min(t.Limit-t.share.Used(), t.largest()-has)
	if need > free {
		return 0, noRoom(need)
	}
	left := b.quota.left(u)
	if need > left {
		return 0, overQuota(quotaDetail(u, need))
	}
	if b.quota.Fair {
		free = min(free, t.share.Left(function))
	}
	if need > free {
		return 0, Full(fmt.Sprintf("the node's input buffer (%s) has no room for %d bytes: it holds %s", t.Name, need, t.share.Full(function, "bytes")))
	}
	return min(want, free, left), nil
}

// giveBack returns room, and entries as well if it was all that they had in the tier.
func (b *Buffer) giveBack(e *Entry, t *tier, room int64, entries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.kept && (e.forgotten || e.outside) {
		return
	}
	if e.kept {
		t.kept -= room
		t.keptEntries -= entries
		return
	}
	b.charge(e.function, t, -room, -entries)
}

// charge has a function have more of a tier, or less. The caller holds the lock.
func (b *Buffer) charge(function string, t *tier, room int64, entries int) {
	t.share.Add(function, room)
	t.entries += entries
	if u := b.functions[function]; u != nil {
		u.bytes += room
		b.countEntries(function, u, entries)
	}
}

// removing counts a part that is being removed, until giveBack.
func (b *Buffer) removing(e *Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if u := b.functions[e.function]; u != nil && !e.kept {
		b.countEntries(e.function, u, 1)
	}
}

// countEntries counts what a function has; the caller holds the lock.
func (b *Buffer) countEntries(function string, u *usage, n int) {
	if u.entries += n; u.entries == 0 {
		delete(b.functions, function)
	}
	b.share.Add(function, int64(n))
}

func (b *Buffer) count(t *tier) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t.entries++
}
