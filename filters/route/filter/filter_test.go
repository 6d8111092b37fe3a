package filter

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filtertest"
	"github.com/headstart-mesh/headstart/filters/host"
	"github.com/headstart-mesh/headstart/filters/prefetch"
)

const (
	near, far = "10.0.0.1:8080", "10.0.0.2:8080"
)

// config has one function, by a name of the test's own: a module's VM lives on, as a
// worker's does, and keeps what it has seen of functions.
func config(t *testing.T) (cluster, text string) {
	cluster = "shop/" + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	return cluster, fmt.Sprintf("v1\n%s %s,900,0,4000,2,0 %s,100,50000,4000,8,0\n", cluster, near, far)
}

// ask has a proxy that has routed a request to cluster ask the filter.
func ask(t *testing.T, p *filtertest.Proxy, cluster string) filtertest.Outcome {
	t.Helper()
	if err := p.SetProperty(strings.Split(clusterProperty, "\x00"), []byte(cluster)); err != nil {
		t.Fatal(err)
	}
	return p.Request([2]string{":method", "GET"}, [2]string{":path", "/"}, [2]string{":authority", "any"})
}

func endpoint(o filtertest.Outcome) string {
	for _, h := range o.Headers {
		if h[0] == filterapi.HeaderEndpoint {
			return h[1]
		}
	}
	return ""
}

// answer is one that endpoint by has given.
func answer(t *testing.T, p *filtertest.Proxy, o filtertest.Outcome, by, status string, headers ...[2]string) {
	t.Helper()
	if err := p.SetProperty(strings.Split(upstreamProperty, "\x00"), []byte(by)); err != nil {
		t.Fatal(err)
	}
	p.CallOnResponseHeaders(o.Context, append([][2]string{{":status", status}}, headers...), true)
	p.CompleteHttpContext(o.Context)
}

func TestARequestHasTheEndpointThatIsBest(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		o := ask(t, p, cluster)
		if got := endpoint(o); got != near {
			t.Errorf("endpoint %q, want %q", got, near)
		}
		answer(t, p, o, near, "200")
	})
}

// Where endpoints may be ejected, who reads the name takes none such.
func TestTheNameIsASession(t *testing.T) {
	cluster, text := config(t)
	run(t, strings.Replace(text, "v1\n", "v1 session\n", 1), func(t *testing.T, p *filtertest.Proxy) {
		o := ask(t, p, cluster)
		want := [2]string{filterapi.HeaderSession, base64.StdEncoding.EncodeToString([]byte(near))}
		if !slices.Contains(o.Headers, want) || endpoint(o) != "" {
			t.Errorf("headers %q, want %q among them", o.Headers, want)
		}
		answer(t, p, o, near, "200")
	})
}

// Of others' requests nothing changes.
func TestOthersRequestsPassAsTheyAre(t *testing.T) {
	_, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		o := ask(t, p, "shop/another")
		want := [][2]string{{":method", "GET"}, {":path", "/"}, {":authority", "any"}}
		if diff := cmp.Diff(want, o.Headers); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
		answer(t, p, o, near, "200")
	})
}

// What is too much for the near endpoint goes to the other, and no more so when it is over.
func TestRequestsInFlightCount(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		var open []filtertest.Outcome
		picked := map[string]int{}
		for range 100 {
			o := ask(t, p, cluster)
			picked[endpoint(o)]++
			open = append(open, o)
		}
		if picked[near] < 10 || picked[far] < 10 {
			t.Errorf("picked %v", picked)
		}
		for _, o := range open {
			p.CompleteHttpContext(o.Context) // their clients have left
		}
		o := ask(t, p, cluster)
		if got := endpoint(o); got != near {
			t.Errorf("with all requests over, %q is picked", got)
		}
		p.CompleteHttpContext(o.Context)
	})
}

// An answer says how busy its endpoint is.
func TestLoadReportsCount(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		answer(t, p, ask(t, p, cluster), near, "200", [2]string{"endpoint-load-metrics", "TEXT named_metrics.in_flight=500"})
		o := ask(t, p, cluster)
		if got := endpoint(o); got != far {
			t.Errorf("%q is picked after an answer that tells of 500 requests", got)
		}
		p.CompleteHttpContext(o.Context)
	})
}

// One that the proxy cannot send to, or that fails, is left alone.
func TestAnEndpointThatIsNoneIsAvoided(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *filtertest.Proxy, o filtertest.Outcome){
		"gone":    func(t *testing.T, p *filtertest.Proxy, o filtertest.Outcome) { answer(t, p, o, far, "200") },
		"failing": func(t *testing.T, p *filtertest.Proxy, o filtertest.Outcome) { answer(t, p, o, near, "503") },
	} {
		t.Run(name, func(t *testing.T) {
			cluster, text := config(t)
			run(t, text, func(t *testing.T, p *filtertest.Proxy) {
				for range 40 {
					if o := ask(t, p, cluster); endpoint(o) == near {
						end(t, p, o)
					} else {
						p.CompleteHttpContext(o.Context)
					}
				}
				tried := 0 // it is, now and then
				for range 20 {
					o := ask(t, p, cluster)
					if endpoint(o) == near {
						tried++
						end(t, p, o)
					} else {
						p.CompleteHttpContext(o.Context)
					}
				}
				if tried > 2 {
					t.Errorf("of 20 requests, %d were meant for it", tried)
				}
				if name != "gone" {
					return
				}
				if n, err := p.GetCounterMetric(avoidedMetric); err != nil || n == 0 {
					t.Errorf("%d requests were counted as avoided, error %v", n, err)
				}
			})
		})
	}
}

// What may still be out of reach costs one request at a time, and the later the longer that took.
func TestOneRequestTriesWhatWasAvoided(t *testing.T) {
	cluster := "shop/tried"
	line := fmt.Sprintf("%s %s,900,0,4000,64,0 %s,100,50000,4000,64,0", cluster, near, far)
	filtertest.Start(t, New(&prefetch.VM{}), "")
	said, err := filterapi.ParseRouteFunction(line)
	if err != nil {
		t.Fatal(err)
	}
	f := newFunction(cluster)
	f.set(line, said)
	picked := func(now time.Duration) (index int, to string) {
		_, i, ok := f.begin(now)
		if !ok {
			t.Fatal("none is picked")
		}
		return i, f.addresses[i]
	}
	now := host.Clock()
	for _, took := range []time.Duration{0, time.Second, time.Minute} {
		f.avoid(near, now, missed(took))
		if _, to := picked(now + missed(took)); to != far {
			t.Errorf("%q is picked too early", to)
		}
		now += missed(took) + 1
		for _, want := range []string{near, far, far} {
			if _, to := picked(now); to != want {
				t.Errorf("after %v without an answer, %q is picked, want %q", took, to, want)
			}
		}
		f.set(line, said) // by which nothing is forgotten
		if _, to := picked(now + trial); to != far {
			t.Errorf("while one request tries it, %q is picked", to)
		}
	}
	now += trial + 1
	i, to := picked(now)
	f.trust(i, to, now)
	if _, again := picked(now); to != near || again != near {
		t.Errorf("%q and %q are picked, of which one has answered", to, again)
	}
}

func TestAnApplicationsErrorIsAnAnswer(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		for range 40 {
			o := ask(t, p, cluster)
			if got := endpoint(o); got != near {
				t.Fatalf("%q is picked", got)
			}
			answer(t, p, o, near, "500")
		}
	})
}

// What another worker has under way counts as if it were this one's.
func TestWorkersShare(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		p.CompleteHttpContext(ask(t, p, cluster).Context)

		_, line, _ := strings.Cut(strings.TrimSpace(text), "\n")
		said, err := filterapi.ParseRouteFunction(line)
		if err != nil {
			t.Fatal(err)
		}
		another := newFunction(cluster)
		another.set(line, said)
		now := host.Clock()
		another.join(now)
		for range 60 {
			another.table.Begin(0, now)
		}
		another.tell(now)
		o := ask(t, p, cluster)
		if got := endpoint(o); got != far {
			t.Errorf("%q is picked, which is full", got)
		}
		p.CompleteHttpContext(o.Context)
	})
}

// Where there is room for many more, workers do not tell each other of each request; together
// they do not fill it more than one would.
func TestWorkersShareWhereThereIsRoom(t *testing.T) {
	cluster := "shop/wide"
	line := fmt.Sprintf("%s %s,1000,0,4000,64,0 %s,0,50000,4000,64,0", cluster, near, far)
	filtertest.Start(t, New(&prefetch.VM{}), "")
	said, err := filterapi.ParseRouteFunction(line)
	if err != nil {
		t.Fatal(err)
	}
	one, another := newFunction(cluster), newFunction(cluster)
	one.set(line, said)
	another.set(line, said)
	now := host.Clock()
	for _, f := range []*function{one, another} { // both have been here
		sent, _, _ := f.begin(now)
		f.over(sent)
	}
	picked := func(f *function, requests int) (n int) {
		for range requests {
			if _, i, ok := f.begin(now); ok && f.addresses[i] == near {
				n++
			}
		}
		return n
	}
	if n := picked(one, 500); n != 500 {
		t.Fatalf("%d of 500 go near", n)
	}
	// Alone it would send 766 near: from 533 more than far on, which wait for the 50 ms of the way,
	// half of the requests go there.
	if n := picked(another, 1000); n < 480 || n > 550 {
		t.Errorf("of another worker's 1000 requests %d go near", n)
	}
}
