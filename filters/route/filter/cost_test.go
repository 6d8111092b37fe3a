package filter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filtertest/counting"
)

// One of these costs Envoy half a microsecond where the machine has nothing else to do, and one
// that gives something twice that: Envoy has the module allocate memory for it.
const (
	// callbacks are what the proxy tells the filter of a request: that it begins, its headers, its
	// answer's, and three times that it is over. Of bodies it tells nothing.
	callbacks = 6
	// questions are what the filter asks about each: its cluster, the time, whether it is answered, the time, and
	// the load. Values are those that it is given.
	questions, values = 5, 3
	// names is that it names the endpoint.
	names = 1
	// shares are the calls by which workers tell each other of an endpoint with few workers: one
	// reads before it picks, writes twice, and the second time asks for the time.
	shares = 4
)

// costs opens the module with two endpoints that have so many workers, and a proxy that counts.
func costs(tb testing.TB, workers int) *counting.Proxy {
	tb.Helper()
	return count(tb, fmt.Sprintf("v1\nshop/cost %s,900,0,4000,%d,0 %s,100,50000,4000,%d,0\n", near, workers, far, workers))
}

func count(tb testing.TB, expectations string) *counting.Proxy {
	tb.Helper()
	p, err := counting.Open(tb.Context(), filter.Module(tb), configuration)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(tb.Context()); err != nil {
			tb.Error(err)
		}
	})
	if err := p.Answer(tb.Context(), [][2]string{{":status", "200"}, {"etag", `"1"`}}, expectations); err != nil {
		tb.Fatal(err)
	}
	return p
}

// exchange is a request that the near endpoint answers, with a report of its load.
func exchange(workers int) *counting.Exchange {
	return &counting.Exchange{
		Properties: map[string]string{clusterProperty: "shop/cost", upstreamProperty: near},
		Request:    map[string]string{":method": "GET", ":path": "/", ":authority": "any"},
		Response: map[string]string{":status": "200", "content-type": "text/plain",
			loadHeader: fmt.Sprintf("TEXT application_utilization=0.5, named_metrics.in_flight=1, named_metrics.capacity=%d, named_metrics.service_time=0.0042", workers)},
	}
}

// crossings are how often a request crosses the border between proxy and module.
type crossings struct{ Callbacks, Calls, Values int }

func crossed(p *counting.Proxy) (c crossings) {
	for name, n := range p.Crossed() {
		switch {
		case name == "proxy_on_memory_allocate":
			c.Values += n
		case strings.HasPrefix(name, "proxy_on_"):
			c.Callbacks += n
		default:
			c.Calls += n
		}
	}
	return c
}

// What a request costs is mostly how often it crosses the border between Envoy and the module.
func TestWhatARequestCosts(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		other   bool          // function, of which the filter does not know
		after   time.Duration // since the last one
		want    crossings
	}{
		"another function's":            {workers: 2, other: true, want: crossings{callbacks, 2, 1}},
		"endpoints have few workers":    {workers: 2, want: crossings{callbacks, questions + names + shares, values + 1}},
		"endpoints have many workers":   {workers: 64, want: crossings{callbacks, questions + names, values}},
		"it is time to see who answers": {workers: 64, after: checkEvery, want: crossings{callbacks, questions + names + 1, values + 1}},
		"it is time to read, too":       {workers: 64, after: readEvery + 1, want: crossings{callbacks, questions + names + 2, values + 2}},
	} {
		t.Run(name, func(t *testing.T) {
			p, e := costs(t, c.workers), exchange(c.workers)
			for range 10 {
				p.End(t.Context(), p.Begin(t.Context(), e), e)
			}
			if got := e.Request[filterapi.HeaderEndpoint]; got != near {
				t.Fatalf("%q is named", got)
			}
			crossed(p)
			p.Now += c.after
			if c.other {
				e.Properties[clusterProperty] = "shop/other"
			}
			p.End(t.Context(), p.Begin(t.Context(), e), e)
			if diff := cmp.Diff(c.want, crossed(p)); diff != "" {
				t.Errorf("crossings (-want +got):\n%s", diff)
			}
		})
	}
}

// One that has failed is not well because it fails at once, whatever else its answers say.
func TestAnErrorAtOnceWithALoad(t *testing.T) {
	p, e := costs(t, 2), exchange(2)
	ask := func(status string) (n int) {
		for range 100 {
			p.Now += 50 * time.Millisecond
			request := p.Begin(t.Context(), e)
			to := e.Request[filterapi.HeaderEndpoint]
			e.Properties[upstreamProperty], e.Response[statusHeader] = to, "200"
			if to == near {
				e.Response[statusHeader] = status
				n++
			}
			p.End(t.Context(), request, e)
		}
		return n
	}
	if n := ask("503"); n > 5 {
		t.Errorf("%d of 100 requests are meant for one that fails", n)
	}
	if n := ask("500"); n > 12 { // as it is forgiven slowly
		t.Errorf("%d of 100 requests are meant for one that fails at once", n)
	}
	p.Now += 30 * time.Second // by then it is forgiven
	if n := ask("200"); n < 90 {
		t.Errorf("%d of 100 requests are meant for one that is well", n)
	}
}

// The module in a machine that is not Envoy's, 1000 requests per second.
func BenchmarkRequest(b *testing.B) {
	for _, workers := range []int{2, 64} {
		b.Run(fmt.Sprint("workers=", workers), func(b *testing.B) {
			p, e := costs(b, workers), exchange(workers)
			crossed(p)
			for b.Loop() {
				p.End(b.Context(), p.Begin(b.Context(), e), e)
				p.Now += time.Millisecond
			}
			c := crossed(p)
			b.ReportMetric(float64(c.Callbacks+c.Calls+c.Values)/float64(b.N), "crossings/op")
		})
	}
}
