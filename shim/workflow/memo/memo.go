// Package memo remembers what functions have answered (the memoization tables of SpecFaaS, section V-B): a function that gets the
// same request again is likely to answer the same. It is fed by answers that count, and does no I/O.
package memo

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/headstart-mesh/headstart/shim/fair"
	"github.com/headstart-mesh/headstart/shim/workflow/program"
)

const (
	// rowsMost is how many answers of a function are kept: the paper finds more of no use (SpecFaaS, section VIII-A).
	rowsMost = 50
	// rowLife is how long one is kept: what a function read elsewhere has changed by then.
	rowLife = time.Hour
	// rowLimit is the largest answer that is kept, in bytes.
	rowLimit = 64 << 10
	// rowLeast is what a row counts for at least, and stringBytes a string but for what is in it.
	rowLeast, stringBytes = 512, 16
	// bytesOfNode bounds all rows, a part of what the chart gives the daemon. Namespaces share it.
	bytesOfNode = 8 << 20

	// LeastRight is how likely guesses have to be right: below, the work that is squashed costs more than it gains. It lets one pass that is wrong
	// every other time, and not two in a row. A function's rows are watched on, so it can come back.
	LeastRight = 0.35
	// seenMost is how many proofs count: a function that answers otherwise from now on is known for that soon. Before so many all is believed.
	seenMost = 16
)

// Of names a table: what a namespace's workflows have heard from one revision of a function. Others learn nothing of that, not
// even by its haste.
type Of struct {
	Namespace string
	Function  string // namespace/name
	Revision  string
}

// Key stands for all that a function gets with a request, but for its trace.
type Key [sha256.Size]byte

// tracing are headers that differ although the request is the same.
var tracing = []string{"Traceparent", "Tracestate", "Baggage"}

// KeyOf is the key of a request.
func KeyOf(r *program.Request) Key {
	h := sha256.New()
	add := func(all ...string) {
		for _, s := range all {
			_ = binary.Write(h, binary.LittleEndian, int64(len(s))) // a hash has no errors
			h.Write([]byte(s))
		}
	}
	add(r.Method, r.URL.String(), string(r.Body))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if !slices.Contains(tracing, http.CanonicalHeaderKey(name)) {
			add(append([]string{name}, r.Header[name]...)...)
			add("") // which no name is
		}
	}
	return Key(h.Sum(nil))
}

// Tables are those of a node. Their methods may be called at the same time.
type Tables struct {
	mu     sync.Mutex
	share  *fair.Share
	tables map[Of]*table
	used   map[string]*list.List // rows by namespace, the one that was used last first
}

// table has the rows of one function, and which part of them has proved right lately.
type table struct {
	rows  map[Key]*list.Element
	right float64
	seen  int
}

type row struct {
	of     Of
	key    Key
	answer program.Answer
	bytes  int64
	at     time.Time
	told   time.Time // when it was news last
}

// New returns tables without rows.
func New() *Tables {
	return &Tables{share: fair.NewShare(bytesOfNode), tables: map[Of]*table{}, used: map[string]*list.List{}}
}

// Guess is what the function has answered last to such a request, if it can be trusted, and which part of such guesses is wrong.
func (t *Tables) Guess(of Of, k Key, now time.Time) (a program.Answer, wrong float64, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := t.tables[of]
	if table == nil || 1-table.wrong() < LeastRight {
		return a, 0, false
	}
	r := t.find(of, k, now)
	if r == nil {
		return a, 0, false
	}
	return r.answer, table.wrong(), true
}

// wrong is which part of the rows has proved wrong lately.
func (t *table) wrong() float64 {
	if t.seen < seenMost {
		return 0
	}
	return 1 - t.right
}

// find returns a row that is not too old; the caller holds mu.
func (t *Tables) find(of Of, k Key, now time.Time) *row {
	table := t.tables[of]
	if table == nil || table.rows[k] == nil {
		return nil
	}
	e := table.rows[k]
	r := e.Value.(*row)
	if now.Sub(r.at) > rowLife {
		t.drop(e)
		return nil
	}
	t.used[of.Namespace].MoveToFront(e)
	return r
}

// drop forgets a row, and its table with the last one; the caller holds mu.
func (t *Tables) drop(e *list.Element) {
	r := e.Value.(*row)
	t.share.Return(r.of.Namespace, r.bytes)
	table, used := t.tables[r.of], t.used[r.of.Namespace]
	if delete(table.rows, r.key); len(table.rows) == 0 {
		delete(t.tables, r.of)
	}
	if used.Remove(e); used.Len() == 0 {
		delete(t.used, r.of.Namespace)
	}
}

// Feed takes an answer that counts. What is large, or no answer, is not kept. news: it is another one than was known, or others may have forgotten
// it soon.
func (t *Tables) Feed(of Of, k Key, a program.Answer, now time.Time) (news bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.put(&row{of: of, key: k, answer: a, bytes: SizeOf(a), at: now, told: now}, true)
}

// Hear takes an answer that has counted elsewhere. It proves nothing, since nobody tells what was right, and is worth less than a newer one.
func (t *Tables) Hear(of Of, k Key, a program.Answer, at, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(at) > rowLife {
		return
	}
	if table := t.tables[of]; table != nil && table.rows[k] != nil && !at.After(table.rows[k].Value.(*row).at) {
		return
	}
	t.put(&row{of: of, key: k, answer: a, bytes: SizeOf(a), at: at, told: now}, false)
}

// put has a row be there, if it fits; the caller holds mu.
func (t *Tables) put(r *row, proves bool) (news bool) {
	of, k, a := r.of, r.key, r.answer
	fits := a.Err == nil && r.bytes <= rowLimit
	if old := t.find(of, k, r.at); old != nil {
		same := Same(old.answer, a)
		if proves {
			t.tables[of].proved(same)
		}
		switch {
		case same:
			old.at = r.at
			if news = r.at.Sub(old.told) > rowLife/2; news {
				old.told = r.at
			}
			return news
		case fits && t.share.Take(of.Namespace, r.bytes-old.bytes):
			*old = *r
			return true
		}
		t.drop(t.tables[of].rows[k])
	}
	if !fits || !t.room(r) {
		return false
	}
	if t.tables[of] == nil {
		t.tables[of] = &table{rows: map[Key]*list.Element{}}
	}
	if t.used[of.Namespace] == nil {
		t.used[of.Namespace] = list.New()
	}
	t.tables[of].rows[k] = t.used[of.Namespace].PushFront(r)
	return true
}

// room takes what a row needs, from other rows of its function and its namespace if it must; the caller holds mu.
func (t *Tables) room(r *row) bool {
	if table := t.tables[r.of]; table != nil && len(table.rows) >= rowsMost {
		for e := t.used[r.of.Namespace].Back(); e != nil; e = e.Prev() {
			if e.Value.(*row).of == r.of {
				t.drop(e)
				break
			}
		}
	}
	for !t.share.Take(r.of.Namespace, r.bytes) {
		used := t.used[r.of.Namespace]
		if used == nil {
			return false // others have it all
		}
		t.drop(used.Back())
	}
	return true
}

func (t *table) proved(right bool) {
	t.seen = min(t.seen+1, seenMost)
	now := 0.0
	if right {
		now = 1
	}
	t.right += (now - t.right) / float64(t.seen)
}

// Same tells whether two answers are the same, as far as workflows look at what functions say: headers have times and ids.
func Same(a, b program.Answer) bool {
	return a.Status == b.Status && a.Header.Get("Content-Type") == b.Header.Get("Content-Type") && bytes.Equal(a.Body, b.Body)
}

// SizeOf is about how many bytes an answer takes.
func SizeOf(a program.Answer) int64 {
	size := rowLeast + len(a.Body)
	for name, values := range a.Header {
		size += len(name)
		for _, v := range values {
			size += stringBytes + len(v)
		}
	}
	return int64(size)
}
