package objects_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// An operator sees what is kept, has an object stay while others go, in its next version as well, and has it go.
func TestOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		want := make([]byte, bufferLimit/2)
		all := big(n, "a", 4)
		first := func(k objects.Key) bool { return k.Reference == all[0].String() }
		any := func(objects.Key) bool { return true }
		n.once(t, "default/f", all[0], want)
		if held, err := n.Pin(first); err != nil || len(held) != 1 || !held[0].Pinned || held[0].Bytes != bufferLimit/2 ||
			held[0].Tier != "disk" || held[0].Users != 0 || held[0].Namespace != "default" {
			t.Errorf("pinned %+v, %v", held, err)
		}
		way := func(at int) string { return n.once(t, "default/f", all[at], want).Way }
		for range 2 {
			for at := 1; at < 4; at++ {
				way(at)
			}
			if got := way(0); got != objects.WayRevalidated {
				t.Errorf("what is pinned comes by the way %s", got)
			}
			n.store.Put(all[0], "", want)
			if got := way(0); got != objects.WayStore {
				t.Errorf("a newer version comes by the way %s", got)
			}
		}
		if checked, err := n.Verify(t.Context(), any); err != nil || len(checked) != 1 || checked[0].Damaged || !checked[0].Pinned {
			t.Errorf("verified %+v, %v", checked, err)
		}
		n.Unpin(any)
		for at := 1; at < 4; at++ {
			way(at)
		}
		if held := n.List(first); len(held) != 0 {
			t.Errorf("what is not pinned any more stays: %+v", held)
		}
		r := request("uses it")
		r.Reference = all[3].String()
		i := n.Fetch(t.Context(), r)
		succeeds(t, i, want)
		if removed := n.Remove(any); len(removed) == 0 || len(n.List(any)) != 0 {
			t.Errorf("removed %+v, left %+v", removed, n.List(any))
		}
		if got := read(t, i); len(got) != len(want) {
			t.Errorf("who uses it has %d bytes", len(got))
		}
		i.Release()
		synctest.Wait()
		if tier := n.buffer.Tiers()[0]; tier.Used != 0 || tier.Kept != 0 {
			t.Errorf("%+v", tier)
		}
	})
}

// Pins take half of the room at most, also when what is pinned grows: inputs have the rest.
func TestPinsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t)
		put := func(key string, bytes int) func(objects.Key) bool {
			ref := source.Reference{Scheme: "s3", Bucket: "inputs", Key: key}
			n.store.Put(ref, "", make([]byte, bytes))
			n.once(t, "default/f", ref, make([]byte, bytes))
			return func(k objects.Key) bool { return k.Reference == ref.String() }
		}
		one := put("one", bufferLimit/4)
		if held, err := n.Pin(one); err != nil || len(held) != 1 {
			t.Errorf("a quarter of the room: %+v, %v", held, err)
		}
		two := put("two", bufferLimit/4+1)
		for _, more := range []func(objects.Key) bool{two, func(objects.Key) bool { return true }} {
			held, err := n.Pin(more)
			if problem.ReasonOf(err) != "CachePinsFull" || len(held) != 0 || !strings.Contains(err.Error(),
				"at most 1048576 bytes in the tier disk, half of its room: 524288 are pinned, and these are 524289") {
				t.Errorf("more than half: %+v, %v", held, err)
			}
		}
		if held := n.List(two); len(held) != 1 || held[0].Pinned {
			t.Errorf("what is refused: %+v", held)
		}
		put("one", bufferLimit*5/8)
		if held := n.List(one); len(held) != 1 || held[0].Pinned {
			t.Errorf("what has grown: %+v", held)
		}
		put("input", bufferLimit*3/4) // finds room
		put("one", bufferLimit/4)
		if held := n.List(one); len(held) != 1 || !held[0].Pinned {
			t.Errorf("what has shrunk again: %+v", held)
		}
	})
}
