package eviction_test

import "slices"

// entry is an object of the model, held or gone.
type entry struct {
	key  int
	size int64
	hits int
	pins int
}

// model is the policy as one would tell it, with every sum made anew.
type model struct {
	small, main, gone []entry
	waiting           []entry // pinned ones whose turn has come; main tells their queue
	fromMain          map[int]bool
}

func find(in []entry, key int) int {
	return slices.IndexFunc(in, func(e entry) bool { return e.key == key })
}

func take(from *[]entry, at int) entry {
	e := (*from)[at]
	*from = slices.Delete(*from, at, at+1)
	return e
}

func bytes(in []entry) (sum int64) {
	for _, e := range in {
		if e.pins == 0 {
			sum += e.size
		}
	}
	return sum
}

func (m *model) held(key int) *entry {
	for _, in := range [][]entry{m.small, m.main, m.waiting} {
		if at := find(in, key); at >= 0 {
			return &in[at]
		}
	}
	return nil
}

func (m *model) len() int { return len(m.small) + len(m.main) + len(m.waiting) }

func (m *model) add(key int, size int64) {
	if e := m.held(key); e != nil {
		e.size = size
	} else if at := find(m.gone, key); at >= 0 {
		e := take(&m.gone, at)
		m.main = append(m.main, entry{key: key, size: size, hits: e.hits})
	} else {
		m.small = append(m.small, entry{key: key, size: size})
	}
}

func (m *model) unpin(key int) {
	e := m.held(key)
	if e == nil || e.pins == 0 {
		return
	}
	e.pins--
	at := find(m.waiting, key)
	if e.pins > 0 || at < 0 {
		return
	}
	back := take(&m.waiting, at)
	if m.fromMain[key] {
		m.main = append(m.main, back)
	} else {
		m.small = append(m.small, back)
	}
}

func (m *model) remove(key int) {
	for _, in := range []*[]entry{&m.small, &m.main, &m.waiting} {
		if at := find(*in, key); at >= 0 {
			take(in, at)
		}
	}
}

func (m *model) evict() (int, int64, bool) {
	for {
		small, main := bytes(m.small), bytes(m.main)
		switch {
		case small > (small+main)/10 || len(m.main) == 0:
			if len(m.small) == 0 {
				return 0, 0, false
			}
			switch e := take(&m.small, 0); {
			case e.pins > 0:
				m.fromMain[e.key] = false
				m.waiting = append(m.waiting, e)
			case e.hits > 0:
				e.hits = 0
				m.main = append(m.main, e)
			default:
				m.gone = append(m.gone, e)
				if extra := len(m.gone) - max(m.len(), 1024); extra > 0 {
					m.gone = m.gone[extra:]
				}
				return e.key, e.size, true
			}
		default:
			switch e := take(&m.main, 0); {
			case e.pins > 0:
				m.fromMain[e.key] = true
				m.waiting = append(m.waiting, e)
			case e.hits > 0:
				e.hits--
				m.main = append(m.main, e)
			default:
				return e.key, e.size, true
			}
		}
	}
}
