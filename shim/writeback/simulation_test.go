package writeback

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// This file runs the package as it is, on nodes that crash, before a store that loses answers and applies requests late,
// in virtual time. What clients see has to be linearizable for each key.

// event is what one client did.
type event struct {
	key      string
	writes   bool
	content  string // written or read; empty: nothing is there
	from, to time.Duration
	open     bool // nobody knows whether it was done
}

// crosses tells whether a read has got another tenant's object. Contents begin with the key, which is of one tenant.
func (e event) crosses() bool {
	return !e.writes && e.content != "" && !strings.HasPrefix(e.content, e.key)
}

// simulated is a node.
type simulated struct {
	sim  *simulation
	name string

	mu     sync.Mutex
	dir    string
	link   *link
	writer *Writer
}

type simulation struct {
	t     *testing.T
	store *fakeStore
	nodes []*simulated
	start time.Time
	calm  chan struct{} // closed: nothing fails any more

	mu     sync.Mutex
	rand   *rand.Rand
	events []event
}

func (s *simulation) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

// fate has one request of twelve fail in some way.
func (s *simulation) fate(r *http.Request) fate {
	f := fate{wait: time.Duration(s.n(int(20 * time.Millisecond)))}
	if r.URL.Query().Has("partNumber") {
		f.wait *= 20 // content takes longer
	}
	select {
	case <-s.calm:
		return f
	default:
	}
	switch s.n(36) {
	case 0:
		f.lost, f.later = true, time.Duration(s.n(int(time.Minute)))
	case 1:
		f.lost, f.later = true, time.Duration(s.n(int(50*time.Millisecond)))
	case 2:
		f.refused = 503
	}
	return f
}

// up starts the node's daemon on a journal.
func (n *simulated) up(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dir, n.link = dir, &link{store: n.sim.store, fate: n.sim.fate, cut: make(chan struct{})}
	n.writer = openAmong(n.sim.t, dir, n.name, n.link, &fakeHolders{n.sim.node, n.sim.holds})
}

// crash ends the daemon at once, and starts another one on what it has left.
func (n *simulated) crash() {
	n.mu.Lock()
	before, dir := n.writer, n.sim.t.TempDir()
	close(n.link.cut)                                             // from now on it acknowledges nothing
	for _, pattern := range []string{"/*", "/*" + suffix, "/*"} { // the daemon may still remove and add
		names, _ := filepath.Glob(n.dir + pattern)
		for _, name := range names {
			to := dir + "/" + filepath.Base(name)
			_, there := os.Stat(to)
			if b, err := os.ReadFile(name); err == nil && there != nil && strings.HasSuffix(name, suffix) == (pattern != "/*") {
				if err := os.WriteFile(to, b, 0o600); err != nil {
					n.sim.t.Error(err)
				}
			}
		}
	}
	n.mu.Unlock()
	before.Close()
	n.up(dir)
}

func (n *simulated) now() (*Writer, *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writer, n.link
}

// ask sends a request of s3proxy's.
func ask(l *link, method, key, body string) (answer, error) {
	b := bucket{l, "b"}
	return b.small(context.Background(), method, key, nil, nil, []byte(body))
}

// client does one thing after the other.
func (s *simulation) client(id int, nodes []*simulated, keys []string, times int) {
	for i := range times {
		time.Sleep(time.Duration(s.n(int(300 * time.Millisecond))))
		node, key := nodes[s.n(len(nodes))], keys[s.n(len(keys))]
		w, l := node.now()
		k := Key{"s", "b", key}
		e := event{key: key, from: time.Since(s.start)}
		var err error
		switch what := s.n(10); {
		case what < 5:
			e.writes, e.content = true, fmt.Sprint(key, " by ", id, " ", i)
			o := object(key, e.content)
			o.Function = key + "/f"
			err = w.Write(s.t.Context(), o)
			if errors.Is(err, ErrThrough) {
				err = s.through(w, l, k, http.MethodPut, e.content)
			}
		case what == 5:
			e.writes = true
			err = s.through(w, l, k, http.MethodDelete, "")
		default:
			e.content, err = s.read(w, l, k)
		}
		e.to, e.open = time.Since(s.start), err != nil
		if !e.open || e.writes {
			s.mu.Lock()
			s.events = append(s.events, e)
			s.mu.Unlock()
		}
	}
}

func (s *simulation) through(w *Writer, l *link, k Key, method, content string) error {
	if err := w.Await(s.t.Context(), k); err != nil {
		return err
	}
	a, err := ask(l, method, k.Key, content)
	if err == nil && !a.ok() {
		err = a.err(method)
	}
	return err
}

func (s *simulation) read(w *Writer, l *link, k Key) (string, error) {
	return fetch(s.t.Context(), w, k, l)
}

// node finds a node's Writer.
func (s *simulation) node(name string) *Writer {
	for _, n := range s.nodes {
		if n.name == name {
			w, _ := n.now()
			return w
		}
	}
	return nil
}

// holds has nodes bring each other what they have, or fail in some way.
func (s *simulation) holds() holding {
	time.Sleep(time.Duration(s.n(int(20 * time.Millisecond))))
	return []holding{away, breaking, there, there}[s.n(4)]
}

// linear tells whether what happened to one key can have happened in an order.
func linear(events []event) bool {
	type point struct {
		done    string
		content string
	}
	tried := map[point]bool{}
	var try func(done []byte, content string) bool
	try = func(done []byte, content string) bool {
		first, left := time.Duration(1<<62), false
		for i, e := range events {
			if done[i] == 0 && !e.open {
				first, left = min(first, e.to), true
			}
		}
		if !left {
			return true
		}
		p := point{string(done), content}
		if tried[p] {
			return false
		}
		tried[p] = true
		for i, e := range events {
			if done[i] != 0 || e.from > first || !e.writes && e.content != content {
				continue
			}
			after := content
			if e.writes {
				after = e.content
			}
			done[i] = 1
			if try(done, after) {
				return true
			}
			done[i] = 0
		}
		return false
	}
	return try(make([]byte, len(events)), "")
}

func simulate(t *testing.T, seed uint64) {
	s := &simulation{t: t, store: newFakeStore(), start: time.Now(), calm: make(chan struct{}), rand: rand.New(rand.NewPCG(seed, 1))}
	for _, name := range []string{"a", "b", "c"} {
		n := &simulated{sim: s, name: name}
		n.up(t.TempDir()) // nobody asks before all are there
		s.nodes = append(s.nodes, n)
	}
	nodes := s.nodes
	keys := []string{"k", "l"}
	var working sync.WaitGroup
	for id := range 4 {
		working.Go(func() { s.client(id, nodes, keys, 6) })
	}
	for range s.n(4) {
		time.Sleep(time.Duration(s.n(int(time.Second))))
		nodes[s.n(len(nodes))].crash()
	}
	working.Wait()
	close(s.calm)
	time.Sleep(3 * time.Hour) // all is quiet
	for _, key := range keys {
		last := event{key: key, from: time.Since(s.start), to: time.Since(s.start)}
		var err error
		w, l := nodes[0].now()
		if last.content, err = s.read(w, l, Key{"s", "b", key}); err != nil {
			t.Error(err)
		}
		var own []event
		for _, e := range append(s.events, last) {
			if e.key == key {
				own = append(own, e)
			}
			if e.crosses() {
				t.Errorf("seed %d: cross_tenant: %+v", seed, e)
			}
		}
		if !linear(own) {
			t.Errorf("seed %d, %s:", seed, key)
			for _, e := range own {
				t.Logf("%+v", e)
			}
		}
	}
	if left := s.store.markers(); len(left) > 0 {
		t.Errorf("seed %d: %q are left", seed, left)
	}
	for _, n := range nodes {
		n.writer.Close()
		if left := files(t, n.dir); len(left) > 0 {
			t.Errorf("seed %d: node %s has %q left", seed, n.name, left)
		}
	}
	s.store.working.Wait()
}

// What clients see is linearizable, whatever crashes and gets lost.
func TestSimulation(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("HEADSTART_CRASHES"))
	if err != nil {
		n = 200
	}
	for i := range n {
		seed := uint64(i)
		if i >= 100 { // others each time
			seed = rand.Uint64()
		}
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		if t.Failed() {
			return
		}
	}
}
