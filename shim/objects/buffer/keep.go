package buffer

import "golang.org/x/sys/unix"

// An entry that nobody uses can be kept: it counts for no function then, and inputs take its room when they need
// it. These methods belong to the one who has created the entry, and call none of his.

// EvictWith says what is called when an input needs room that kept entries have: evict has to Forget and to Release
// kept entries of the tier, and returns how many bytes it could not get. Call EvictWith before the buffer is used.
func (b *Buffer) EvictWith(evict func(tier string, need int64) (unpaid int64)) { b.evict = evict }

// Forget takes a kept entry out of the buffer's accounts, before its Release: inputs have its room at once, however
// long its file is still open somewhere. paid is how much of its room evict was called for.
func (b *Buffer) Forget(e *Entry, paid int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !e.kept || e.outside || e.forgotten {
		return
	}
	e.forgotten = true
	e.whole.tier.kept -= e.whole.room
	e.whole.tier.keptEntries--
	e.whole.tier.owed -= paid
}

// beWhole notes the entry's one file. The caller holds the entry's lock.
func (e *Entry) beWhole() {
	if len(e.parts) != 1 {
		return
	}
	if _, ok := e.parts[0].content.(*file); ok {
		e.buffer.mu.Lock()
		defer e.buffer.mu.Unlock()
		e.whole = e.parts[0]
	}
}

// Idle calls then once nobody reads the complete entry or has its file open: at once, or later from another
// goroutine. can says whether the entry can be kept: it has to be one file.
func (e *Entry) Idle(then func(can bool)) {
	e.mu.Lock()
	whole, copied := part{}, e.copied.content != nil
	if len(e.parts) == 1 {
		whole = e.parts[0]
	}
	f, ok := whole.content.(*file)
	if ok = ok && e.complete && !copied; ok && e.owners > 1 {
		e.idle = append(e.idle, then)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	switch {
	case ok && !e.outside && isOpen(f.file):
		f.files.keep(kept{file: f.file, named: true, closed: func() { then(true) }})
	default:
		then(ok)
	}
}

// Keep has the entry count for no function, and returns its tier. kept is false for an entry that is not one file, or
// that is gone.
func (b *Buffer) Keep(e *Entry) (tier string, kept bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := e.whole.tier
	if t == nil || e.kept && !e.outside || b.entries[e.id] != e {
		return "", false
	}
	if e.outside {
		return OutsideTier, true
	}
	b.charge(e.function, t, -e.whole.room, -1)
	e.kept = true
	t.kept += e.whole.room
	t.keptEntries++
	return t.Name, true
}

// Use has an entry that may be kept count for a function again. Its errors are those of Create.
func (b *Buffer) Use(e *Entry, function string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.entries == nil:
		return errClosed
	case !e.kept, e.outside:
		return nil
	}
	t, room := e.whole.tier, e.whole.room
	u, err := b.admit(function)
	if err != nil {
		return err
	}
	if _, err := b.fit(function, u, t, 0, room, room); err != nil {
		return err
	}
	t.kept -= room
	t.keptEntries--
	b.functions[function] = u
	b.charge(function, t, room, 1)
	e.function, e.kept = function, false
	return nil
}

// Lacks is how many bytes a tier has more than it may, or the free space of its file system falls short of Spare.
func (b *Buffer) Lacks(tier string) int64 {
	for _, t := range b.tiers {
		if t.Name == tier {
			b.mu.Lock()
			defer b.mu.Unlock()
			return max(t.over(), t.lacks(t.Spare))
		}
	}
	return 0
}

// RoomOf is the tier of a complete entry, and how many bytes there are for all in it; without a tier it cannot be kept.
func (b *Buffer) RoomOf(e *Entry) (tier string, room int64) {
	b.mu.Lock()
	t := e.whole.tier
	b.mu.Unlock()
	switch {
	case t == nil:
		return "", 0
	case e.outside:
		return OutsideTier, t.lacks(100) - t.lacks(0) // the whole disk
	}
	return t.Name, t.Limit
}

// lacks is how many bytes the free space falls short of a percentage of the file system; 0 if that is unknown.
func (t *tier) lacks(percent int64) int64 {
	files, ok := t.Medium.(*Files)
	var system unix.Statfs_t
	if !ok || unix.Fstatfs(int(files.dir.Fd()), &system) != nil {
		return 0
	}
	return (int64(system.Blocks)/100*percent - int64(system.Bavail)) * system.Bsize
}
