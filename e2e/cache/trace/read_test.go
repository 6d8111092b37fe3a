package trace_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/cache/trace"
)

const (
	ibm = `1 REST.PUT.OBJECT aa 100
2 REST.GET.OBJECT aa 100 0 99
3 REST.HEAD.OBJECT aa 100

4 REST.GET.OBJECT bb 7
5 REST.GET.OBJECT aa 100
6 REST.PUT.OBJECT aa 120
7 REST.GET.OBJECT aa 120
8 REST.GET.OBJECT cc
9 REST.DELETE.OBJECT bb
`
	csv = "# of somewhere\n1,aa,100\n2,bb, 7,-1\n3,aa,100\n4,aa,120\n"
)

func TestPublishedTraces(t *testing.T) {
	four := trace.Trace{Requests: []trace.Request{{0, 100}, {1, 7}, {0, 100}, {2, 120}}, Footprint: 227}
	for name, c := range map[string]struct {
		text string
		want trace.Trace
	}{
		"IBM":              {ibm, four},
		"CSV":              {csv, four},
		"names of columns": {"time,obj,size\n1,aa,5\n", trace.Trace{Requests: []trace.Request{{0, 5}}, Footprint: 5}},
	} {
		got, err := trace.Read(strings.NewReader(c.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

func TestABadTraceIsRefusedWithItsLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":           {"", "no requests"},
		"no requests":       {"1 REST.PUT.OBJECT aa 100\n", "no requests"},
		"another format":    {"1,aa,5\n{\"key\": 1}\n", "line 2: \"{\\\"key\\\": 1}\" is neither"},
		"names in line two": {"1,aa,5\ntime,obj,size\n", "line 2: size \"size\""},
		"a negative size":   {"1 REST.GET.OBJECT aa -1\n", "line 1: size \"-1\""},
		"a fraction":        {"\n1,aa,1.5\n", "line 2: size"},
		"a huge size":       {"\n1,aa,9223372036854775808\n", "line 2: size"},
		"huge in sum":       {strings.Repeat("1,aa,2000000000000000000\n", 2), "line 2: the requests are for more"},
		"a long line":       {"1,aa,5\n2," + strings.Repeat("a", 5000) + ",5\n", "line 2: bufio.Scanner: token too"},
	} {
		_, err := trace.Read(strings.NewReader(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is read can be replayed: each object has one size, and their sum is the footprint.
func FuzzRead(f *testing.F) {
	f.Add(ibm)
	f.Add(csv)
	f.Fuzz(func(t *testing.T, text string) {
		read, err := trace.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		sizes, sum := map[int]int64{}, int64(0)
		for i, r := range read.Requests {
			size, known := sizes[r.Object]
			if !known {
				size = r.Size
				sum += r.Size
			}
			if r.Size < 0 || r.Size != size && !strings.Contains(text, "REST") {
				t.Fatalf("request %d is for %d bytes of an object of %d", i, r.Size, size)
			}
			sizes[r.Object] = size
		}
		if sum != read.Footprint {
			t.Errorf("footprint %d, want %d", read.Footprint, sum)
		}
		for _, order := range []trace.Order{trace.LRU(), trace.Ours()} {
			h := trace.Replay(read, read.Footprint/2, order)
			if h.Requests < 0 || h.Requests > 1 || h.Bytes < 0 || h.Bytes > 1 {
				t.Errorf("%+v", h)
			}
		}
	})
}
