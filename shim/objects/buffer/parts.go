package buffer

import "errors"

// step is how many bytes an entry of unknown size gets at a time: few enough that many
// such entries do not keep the room from each other, and enough that to ask the file
// system for them costs nothing beside writing them.
const step = 1 << 20

// part is a stretch of an entry's bytes in one tier.
type part struct {
	tier    *tier
	content Content
	from    int64 // where it begins in the entry
	room    int64 // bytes that are reserved for it
}

// parts are an entry's bytes, in order and without a gap. An entry of a known size has
// one; one that grows goes on in the next tier when its tier has no more room.
type parts []part

// room is how many bytes are reserved.
func (p parts) room() int64 {
	if len(p) == 0 {
		return 0
	}
	last := p[len(p)-1]
	return last.from + last.room
}

// stretch is n bytes of a content.
type stretch struct {
	content Content
	at, n   int64
}

// stretches are where n bytes of the entry are, for which room is reserved.
func (p parts) stretches(at, n int64) []stretch {
	var all []stretch
	for _, part := range p {
		begin, end := max(at, part.from), min(at+n, part.from+part.room)
		if begin < end {
			all = append(all, stretch{part.content, begin - part.from, end - begin})
		}
	}
	return all
}

// reserve makes room for the whole of an entry whose size is known.
func (e *Entry) reserve() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.size == Unknown {
		return nil
	}
	return e.grow(e.size)
}

// grow makes room for the bytes up to end. The caller holds the lock.
func (e *Entry) grow(end int64) error {
	has := e.parts.room()
	need := end - has
	if need <= 0 {
		return nil
	}
	if most := e.buffer.most(e.size); end > most {
		return tooSmall(end, most)
	}
	want := need
	if e.size == Unknown {
		want = max(need, step)
	}
	var last *tier
	err := error(noRoom(need))
	if n := len(e.parts); n > 0 {
		last = e.parts[n-1].tier
		if err = e.enlarge(&e.parts[n-1], e.id, need, want); !isElsewhere(err) {
			return err
		}
	}
	for _, t := range e.buffer.after(last) {
		next := part{tier: t, from: has}
		if err = e.enlarge(&next, e.id, need, want); err == nil {
			e.parts = append(e.parts, next)
		}
		if !isElsewhere(err) {
			return err
		}
	}
	return err // of the last tier
}

// enlarge makes room for more bytes in a part, and the part itself, under the name id, if
// it is not there yet.
func (e *Entry) enlarge(p *part, id string, need, want int64) (err error) {
	b := e.buffer
	more, err := b.take(e, p.tier, p.room, need, want)
	if err != nil {
		return err
	}
	content, err := p.resized(id, p.room+more)
	if isNoRoom(err) && b.makeSpace(p.tier, more) { // others have filled the disk
		content, err = p.resized(id, p.room+more)
	}
	if err != nil {
		b.giveBack(e, p.tier, more, 0)
		return err
	}
	if p.content == nil {
		b.count(p.tier)
	}
	p.content, p.room = content, p.room+more
	return nil
}

// resized is the part's content with room for size bytes.
func (p *part) resized(id string, size int64) (_ Content, err error) {
	content := p.content
	if content == nil {
		if content, err = p.tier.Medium.Create(id); err != nil {
			return nil, err
		}
	}
	if err := content.Resize(size); err != nil {
		if p.content == nil {
			content.Remove(func() {})
		}
		return nil, err
	}
	return content, nil
}

// makeSpace evicts so many bytes that a tier keeps, because its medium has less room than its limit says, and returns
// when they are free. It is false if nothing could be evicted.
func (b *Buffer) makeSpace(t *tier, need int64) bool {
	b.mu.Lock()
	before := t.kept
	t.owed += need
	b.mu.Unlock()
	b.makeRoom(t, need)
	if files, ok := t.Medium.(*Files); ok {
		files.settle()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return t.kept < before
}

// shrink gives back what is reserved beyond size. The caller holds the lock.
func (e *Entry) shrink(size int64) error {
	for len(e.parts) > 0 && e.parts.room() > size {
		last := &e.parts[len(e.parts)-1]
		if last.from >= size {
			e.discard(*last)
			e.parts = e.parts[:len(e.parts)-1]
			continue
		}
		if err := last.content.Resize(size - last.from); err != nil {
			return err
		}
		e.buffer.giveBack(e, last.tier, last.from+last.room-size, 0)
		last.room = size - last.from
	}
	return nil
}

// clear removes all parts.
func (e *Entry) clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.parts {
		e.discard(p)
	}
	if e.copied.content != nil {
		e.discard(e.copied)
	}
	e.parts, e.copied = nil, part{}
}

// discard removes a part, and gives back its room when that is free. Until then the part counts as an
// entry itself.
func (e *Entry) discard(p part) {
	if f, ok := p.content.(*file); ok && e.outside {
		f.leave()
		return
	}
	e.buffer.removing(e)
	p.content.Remove(func() { e.buffer.giveBack(e, p.tier, p.room, 1) })
}

// at returns the part that has the byte at an offset, and how many bytes it has from there on.
func (e *Entry) at(offset int64) (part, int64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.parts {
		if n := p.from + p.room - offset; n > 0 {
			return p, n, nil
		}
	}
	return part{}, 0, errors.New("the buffer entry has been removed")
}
