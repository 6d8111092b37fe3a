package linkemu

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestQueueIsFirstInFirstOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		pushed, dropped := 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) {
				q.push(packet{due: time.Duration(pushed)})
				pushed++
			},
			"drop": func(*rapid.T) {
				if pushed > dropped {
					q.drop()
					dropped++
				}
			},
			"": func(t *rapid.T) {
				p, ok := q.first()
				if ok != (pushed > dropped) {
					t.Fatalf("first says %v with %d packets", ok, pushed-dropped)
				}
				if ok && p.due != time.Duration(dropped) {
					t.Fatalf("first is %d, want %d", p.due, dropped)
				}
			},
		})
	})
}

// A queue that never empties must not grow with what has passed through it.
func TestQueueReusesItsSlots(t *testing.T) {
	var q queue
	for range 10 {
		q.push(packet{})
	}
	for range 100_000 {
		q.push(packet{})
		q.drop()
	}
	if cap(q.packets) > 64 {
		t.Errorf("%d slots for 10 packets", cap(q.packets))
	}
}

func TestBuffersAreReused(t *testing.T) {
	var b buffers
	for _, n := range []int{1, smallFrame, smallFrame + 1, maxFrame} {
		buffer := b.get(n)
		if len(buffer) != n {
			t.Fatalf("a buffer of %d bytes, want %d", len(buffer), n)
		}
		b.put(buffer)
	}
	if len(b.small) != 1 || len(b.large) != 1 {
		t.Errorf("%d small and %d large buffers after one of each in turn", len(b.small), len(b.large))
	}
}
