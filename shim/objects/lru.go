package objects

import "container/list"

// lru has what was used last go last.
type lru struct {
	list list.List // of *ordered, what goes first at its front
	at   map[Key]*list.Element
}

type ordered struct {
	key    Key
	size   int64
	pinned bool
}

func newLRU() *lru { return &lru{at: map[Key]*list.Element{}} }

func (l *lru) Add(k Key, size int64) { l.at[k] = l.list.PushBack(&ordered{key: k, size: size}) }
func (l *lru) Pin(k Key)             { l.pin(k, true) }
func (l *lru) Unpin(k Key)           { l.pin(k, false) }

func (l *lru) Hit(k Key) {
	if at := l.at[k]; at != nil {
		l.list.MoveToBack(at)
	}
}

func (l *lru) pin(k Key, pinned bool) {
	if at := l.at[k]; at != nil {
		at.Value.(*ordered).pinned = pinned
	}
}

func (l *lru) Remove(k Key) {
	if at := l.at[k]; at != nil {
		l.list.Remove(at)
		delete(l.at, k)
	}
}

// Evict passes over what is pinned: few objects are at a time.
func (l *lru) Evict() (Key, int64, bool) {
	for at := l.list.Front(); at != nil; at = at.Next() {
		if o := at.Value.(*ordered); !o.pinned {
			l.Remove(o.key)
			return o.key, o.size, true
		}
	}
	return Key{}, 0, false
}
