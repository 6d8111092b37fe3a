package eviction_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headstart-mesh/headstart/shim/objects/eviction"
)

var (
	keys  = rapid.IntRange(0, 40)
	sizes = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 100), rapid.Int64Range(0, 1e12))
)

// drain evicts all that can be.
func drain(p *eviction.Policy[int]) (all []int) {
	for {
		key, _, ok := p.Evict()
		if !ok {
			return all
		}
		all = append(all, key)
	}
}

func TestAPolicyDoesWhatTheModelDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, m := eviction.New[int](), &model{fromMain: map[int]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				key, size := keys.Draw(t, "key"), sizes.Draw(t, "size")
				p.Add(key, size)
				m.add(key, size)
			},
			"hit": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				p.Hit(key)
				if e := m.held(key); e != nil {
					e.hits = min(e.hits+1, 3)
				}
			},
			"pin": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				p.Pin(key)
				if e := m.held(key); e != nil {
					e.pins++
				}
			},
			"unpin": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				p.Unpin(key)
				m.unpin(key)
			},
			"remove": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				p.Remove(key)
				m.remove(key)
			},
			"evict": func(t *rapid.T) {
				key, size, ok := p.Evict()
				if k, s, held := m.evict(); key != k || size != s || ok != held {
					t.Fatalf("evicted %d of %d bytes (%v), want %d of %d (%v)", key, size, ok, k, s, held)
				}
			},
			"": func(t *rapid.T) {
				if want := bytes(m.small) + bytes(m.main) + bytes(m.waiting); p.Len() != m.len() || p.Bytes() != want {
					t.Fatalf("%d objects with %d bytes to give, want %d with %d", p.Len(), p.Bytes(), m.len(), want)
				}
			},
		})
	})
}

// A cache that makes room before it adds is never too full, evicts nothing that it does not hold or that is in use,
// and gives each object once.
func TestACacheNeverHoldsMoreThanItsCapacity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(0, 1000).Draw(t, "capacity")
		p, held, pinned := eviction.New[int](), map[int]int64{}, map[int]int{}
		var used int64
		evict := func() bool {
			key, size, ok := p.Evict()
			if !ok {
				return false
			}
			if s, is := held[key]; !is || s != size || pinned[key] > 0 {
				t.Fatalf("evicted %d of %d bytes; held %v with %d, pinned %d times", key, size, is, s, pinned[key])
			}
			delete(held, key)
			used -= size
			return true
		}
		for range rapid.IntRange(0, 300).Draw(t, "requests") {
			key := keys.Draw(t, "key")
			if _, is := held[key]; is {
				p.Hit(key)
				if rapid.Bool().Draw(t, "pin") {
					p.Pin(key)
					pinned[key]++
				} else if pinned[key] > 0 {
					p.Unpin(key)
					pinned[key]--
				}
				continue
			}
			size := rapid.Int64Range(0, 300).Draw(t, "size")
			for used+size > capacity && evict() {
			}
			if used+size <= capacity {
				p.Add(key, size)
				held[key] = size
				used += size
			}
			if used > capacity || p.Len() != len(held) {
				t.Fatalf("%d of %d bytes, %d objects of %d", used, capacity, p.Len(), len(held))
			}
		}
		for key, pins := range pinned {
			for range pins {
				p.Unpin(key)
			}
		}
		clear(pinned)
		for evict() {
		}
		if used != 0 || len(held) != 0 || p.Bytes() != 0 {
			t.Errorf("%d bytes of %v are never evicted", used, held)
		}
	})
}

func TestAScanLeavesWhatIsAskedForAgain(t *testing.T) {
	p := eviction.New[int]()
	const hot, room = 50, 100
	for round := range 3 {
		for key := range hot {
			if round == 0 {
				p.Add(key, 1)
			}
			p.Hit(key)
		}
	}
	for key := 1000; key < 2000; key++ {
		for p.Len() >= room {
			if gone, _, _ := p.Evict(); gone < hot {
				t.Fatalf("the scan has evicted %d, at its %dth object", gone, key-1000)
			}
		}
		p.Add(key, 1)
	}
}

func TestWhatComesBackSoonIsNotNew(t *testing.T) {
	p := eviction.New[string]()
	for _, key := range []string{"a", "b"} {
		p.Add(key, 10)
	}
	if key, _, _ := p.Evict(); key != "a" {
		t.Fatalf("evicted %q", key)
	}
	p.Add("a", 10)
	p.Add("c", 10)
	if key, _, _ := p.Evict(); key != "b" {
		t.Errorf("evicted %q", key)
	}
	if key, _, _ := p.Evict(); key != "c" {
		t.Errorf("evicted %q, and not what is new", key)
	}
}

func TestAnObjectInUseStaysAsOftenAsItIsPinned(t *testing.T) {
	p := eviction.New[int]()
	p.Add(1, 5)
	p.Add(2, 5)
	p.Pin(1)
	p.Pin(1)
	if all := drain(p); !slices.Equal(all, []int{2}) || p.Bytes() != 0 || p.Len() != 1 {
		t.Errorf("evicted %v, %d bytes are left to give", all, p.Bytes())
	}
	p.Unpin(1)
	if all := drain(p); all != nil {
		t.Errorf("evicted %v while pinned once", all)
	}
	p.Unpin(1)
	p.Unpin(1) // once too often
	if all := drain(p); !slices.Equal(all, []int{1}) {
		t.Errorf("evicted %v", all)
	}
}

// What is in use cannot be evicted. It must not have the rest of the small queue go before its time.
func TestBytesInUseAreNoPartOfTheSmallQueue(t *testing.T) {
	p := eviction.New[int]()
	for key := range 100 { // which come to the main queue
		p.Add(key, 1)
		p.Hit(key)
	}
	p.Evict()
	p.Add(300, 1000)
	p.Pin(300)
	p.Add(301, 1)
	if key, _, _ := p.Evict(); key == 301 {
		t.Error("an object goes at once, because another one is in use")
	}
}

func TestGhostsAreBounded(t *testing.T) {
	p := eviction.New[int]()
	const first, most = 0, 1024
	for key := range most + 1 { // all of no bytes
		p.Add(key, 0)
		p.Evict()
	}
	p.Add(first, 1)  // forgotten: new
	p.Add(most/2, 1) // a ghost
	if key, _, _ := p.Evict(); key != first {
		t.Errorf("evicted %d", key)
	}
}
