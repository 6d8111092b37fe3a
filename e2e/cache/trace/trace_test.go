package trace_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/cache/trace"
)

func TestASyntheticTraceIsItsMix(t *testing.T) {
	for _, m := range []trace.Mix{{Zipf: 0.8, Scans: 0.2}, {Zipf: 1, Scans: 0.4}, {Zipf: 1}} {
		one := trace.Synthetic(m, 7)
		if d := cmp.Diff(one, trace.Synthetic(m, 7)); d != "" {
			t.Errorf("%+v is another one the second time", m)
		}
		times, sizes := map[int]int{}, map[int]int64{}
		var all int64
		for _, r := range one.Requests {
			if times[r.Object]++; times[r.Object] == 1 {
				all += r.Size
			}
			if size, known := sizes[r.Object]; known && size != r.Size || r.Size < 1 || r.Size > 512e6 {
				t.Fatalf("%d bytes, before %d", r.Size, size)
			}
			sizes[r.Object] = r.Size
		}
		once := 0
		for _, n := range times {
			if n == 1 {
				once++
			}
		}
		if share := float64(once) / float64(len(one.Requests)); share < m.Scans || share > m.Scans+0.1 {
			t.Errorf("%+v: %.3f of the requests are for objects that are asked for once", m, share)
		}
		if one.Footprint > all || m.Scans == 0 && one.Footprint != all {
			t.Errorf("%+v: footprint %d of %d bytes", m, one.Footprint, all)
		}
	}
}

// of are requests for objects, of 10 bytes each.
func of(objects ...int) (t trace.Trace) {
	for _, o := range objects {
		t.Requests = append(t.Requests, trace.Request{Object: o, Size: 10})
	}
	return t
}

func TestHitsAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		trace    trace.Trace
		capacity int64
		want     trace.Hits
	}{
		"all fit":       {of(0, 1, 0, 1), 20, trace.Hits{Requests: 0.5, Bytes: 0.5}},
		"one fits":      {of(0, 1, 0, 1), 19, trace.Hits{}},
		"none fits":     {of(0, 0), 9, trace.Hits{}},
		"the last used": {of(0, 1, 0, 2, 0, 1), 20, trace.Hits{Requests: 2. / 6, Bytes: 2. / 6}},
		"large ones": {trace.Trace{Requests: []trace.Request{{0, 30}, {1, 10}, {0, 30}, {1, 10}}}, 20,
			trace.Hits{Requests: 0.25, Bytes: 0.125}},
		"nothing": {trace.Trace{}, 20, trace.Hits{}},
	} {
		if got := trace.Replay(c.trace, c.capacity, trace.LRU()); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// Objects of the last requests are in use: an object that finds no other one passes by.
func TestOursKeepsWhatIsInUse(t *testing.T) {
	if got := trace.Replay(of(0, 1, 0, 1), 10, trace.Ours()); got != (trace.Hits{Requests: 0.25, Bytes: 0.25}) {
		t.Errorf("%+v", got)
	}
}
