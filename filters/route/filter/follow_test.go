package filter

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/filters/filtertest"
	"github.com/headstart-mesh/headstart/filters/prefetch"
)

func value(headers [][2]string, name string) string {
	for _, h := range headers {
		if h[0] == name {
			return h[1]
		}
	}
	return ""
}

// A worker asks with what it has, one question at a time, and what it is told counts from then on.
func TestTheDaemonSaysWhatToExpect(t *testing.T) {
	cluster, text := config(t)
	filter.Run(t, configuration, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		if o := ask(t, p, cluster); endpoint(o) != "" {
			t.Errorf("%q is named before the daemon has said anything", endpoint(o))
		}
		p.Tick()
		p.Tick()
		if n := len(asked(p)); n != 1 {
			t.Fatalf("asked %d times", n)
		}
		if q := asked(p)[0]; q.Upstream != "headstart-hints" || value(q.Headers, ":path") != "/v1/expectations" || value(q.Headers, "if-none-match") != "" || p.GetTickPeriod() != 0 {
			t.Errorf("the first question is %+v, with ticks each %d ms", q, p.GetTickPeriod())
		}
		p.CallOnHttpCallResponse(asked(p)[0].CalloutID, [][2]string{{":status", "200"}, {"etag", `"7"`}}, nil, []byte(text))
		if o := ask(t, p, cluster); endpoint(o) != near {
			t.Errorf("%q is named", endpoint(o))
		}
		tell(p, "304", "", "")
		tell(p, "200", `"8"`, "v1\n")
		if o := ask(t, p, cluster); endpoint(o) != "" {
			t.Errorf("%q is named when nothing is expected any more", endpoint(o))
		}
		p.Tick()
		var known []string
		for _, q := range asked(p) {
			known = append(known, value(q.Headers, "if-none-match"))
		}
		if want := []string{"", `"7"`, `"7"`, `"8"`}; !slices.Equal(known, want) {
			t.Errorf("asked with %q, want %q", known, want)
		}
	})
}

// Without a daemon the worker goes on with what it has, and asks again.
func TestADaemonThatIsAway(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		for _, headers := range [][][2]string{nil, {{":status", "503"}}, {{":status", "504"}}} {
			p.Tick()
			before := asked(p)
			p.CallOnHttpCallResponse(before[len(before)-1].CalloutID, headers, nil, nil)
			if got := p.GetTickPeriod(); got != 1000 {
				t.Errorf("it asks again after %d ms", got)
			}
			if o := ask(t, p, cluster); endpoint(o) != near {
				t.Errorf("%q is named", endpoint(o))
			}
		}
		if logs := p.GetWarnLogs(); len(logs) != 1 {
			t.Errorf("warnings %q, want one", logs)
		}
		tell(p, "200", `"2"`, text)
		if got := p.GetTickPeriod(); got == 1000 {
			t.Errorf("it asks again after %d ms", got)
		}
	})
}

// A daemon of another version is there, and says nothing that the worker can use, while endpoints change: weights
// decide, until there is one again that says something.
func TestADaemonOfAnotherVersion(t *testing.T) {
	cluster, text := config(t)
	for _, status := range []string{"404", "500"} {
		run(t, text, func(t *testing.T, p *filtertest.Proxy) {
			tell(p, status, "", "")
			if o := ask(t, p, cluster); endpoint(o) != "" || p.GetTickPeriod() != 1000 {
				t.Errorf("after %s %q is named, and the daemon asked again after %d ms", status, endpoint(o), p.GetTickPeriod())
			}
			tell(p, "200", `"1"`, text)
			all := asked(p)
			if got := value(all[len(all)-1].Headers, "if-none-match"); got != "" {
				t.Errorf("it asks with %q", got)
			}
			if o := ask(t, p, cluster); endpoint(o) != near {
				t.Errorf("%q is named", endpoint(o))
			}
		})
	}
}

// A daemon that an attacker has taken over says what it likes: data that make no sense are rejected, and
// are not asked for again, however often the attacker says them. Weights decide then.
func TestAttackADaemonSaysNonsense(t *testing.T) {
	cluster, text := config(t)
	for name, nonsense := range map[string]string{
		"nothing":       "",
		"other version": "v2\n",
		"endpoint":      "v1\nshop/wrong a:80,1,2,3,4,5\n",
		"twice":         "v1\nshop/wrong 10.0.0.1:80,1,2,3,4,5\nshop/wrong 10.0.0.1:80,1,2,3,4,5\n",
		"too much":      "v1\n" + strings.Repeat("a", 5<<20),
		"too many":      "v1\n" + many(filterapi.MaxRouteTotal/filterapi.MaxRouteEndpoints) + "shop/wrong 10.0.0.1:80,1,2,3,4,5\n",
		"a module":      "\x00asm\x01\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			run(t, text, func(t *testing.T, p *filtertest.Proxy) {
				tell(p, "200", `"2"`, nonsense)
				if logs := p.GetWarnLogs(); len(logs) != 1 || !strings.Contains(logs[0], "rejected, weights decide") {
					t.Errorf("warnings %q, want one", logs)
				}
				if o := ask(t, p, cluster); endpoint(o) != "" {
					t.Errorf("%q is named", endpoint(o))
				}
				p.Tick()
				all := asked(p)
				if got := value(all[len(all)-1].Headers, "if-none-match"); got != `"2"` || p.GetTickPeriod() != 0 {
					t.Errorf("it asks with %q, and ticks each %d ms", got, p.GetTickPeriod())
				}
			})
		})
	}
}

// A daemon that an attacker has taken over has the filter pick endpoints of a service that is no function. In a
// mesh the gateway knows which are functions.
func TestAttackADaemonSteersAnothersRequests(t *testing.T) {
	cluster, text := config(t)
	filter.Run(t, meshConfiguration, func(t *testing.T, p *filtertest.Proxy) {
		start(t, p)
		tell(p, "200", `"1"`, text)
		if o := ask(t, p, cluster); endpoint(o) != "" {
			t.Errorf("%q is named for a service", endpoint(o))
		}
		if err := p.SetProperty(strings.Split(functionProperty, "\x00"), []byte("shop/function")); err != nil {
			t.Fatal(err)
		}
		if o := ask(t, p, cluster); endpoint(o) != near {
			t.Errorf("%q is named for a function", endpoint(o))
		}
	})
}

// many are so many functions with as many endpoints as one may have.
func many(functions int) string {
	var b strings.Builder
	for i := range functions {
		fmt.Fprintf(&b, "shop/%d%s\n", i, strings.Repeat(" 10.0.0.1:80,1,2,3,4,5", filterapi.MaxRouteEndpoints))
	}
	return b.String()
}

// A daemon that an attacker has taken over has a worker read all the time, as much as it may say, which it always
// changes. Ten elevenths of the worker are for requests.
func TestAttackADaemonKeepsAWorkerBusy(t *testing.T) {
	p := filtertest.Start(t, New(&prefetch.VM{}), configuration)
	synctest.Test(t, func(t *testing.T) {
		for took, want := range map[time.Duration]uint32{0: 100, time.Millisecond: 100, 70 * time.Millisecond: 700} {
			f := &follower{use: func([]byte) error { time.Sleep(took); return nil }}
			f.take(nil, "")
			if got := p.GetTickPeriod(); got != want {
				t.Errorf("after %v it asks again after %d ms, want %d", took, got, want)
			}
		}
	})
}

// A plugin that has ended asks no more, and is not heard.
func TestAPluginThatHasEnded(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		p.Tick()
		all := asked(p)
		p.FinishVM()
		if got := p.GetTickPeriod(); got != 0 {
			t.Errorf("the proxy ticks each %d ms", got)
		}
		p.CallOnHttpCallResponse(all[len(all)-1].CalloutID, [][2]string{{":status", "200"}}, nil, []byte("v1\n"))
		p.Tick()
		if n := len(asked(p)); n != len(all) {
			t.Errorf("asked %d times more", n-len(all))
		}
		if o := ask(t, p, cluster); endpoint(o) != near {
			t.Errorf("%q is named", endpoint(o))
		}
	})
}

// A daemon that an attacker has taken over, or that is away while the function gains an input, has a mesh's filter
// pick an instance for it. No instance gets a request without its input: what the gateway has of the function comes
// first, also if it cannot be read here, and then no instance is picked.
func TestAttackADaemonPicksAFunctionWithAnInput(t *testing.T) {
	cluster, text := config(t)
	for name, c := range map[string]struct {
		function, to, input string
		hints               int
	}{
		"a fixed input": {`{"name":"shop/fixed","input":"s3://models/latest.bin"}`,
			"/run/ingress.sock", "s3://models/latest.bin", 1},
		"the request names none": {`{"name":"shop/named","input":"s3://models/{header.x-key}"}`,
			filterapi.AnyEndpoint, "", 0},
		"of a version to come": {`{"name":"shop/new","input":"gs://models/latest.bin"}`, "", "", 0},
		"what makes no sense":  {`{`, "", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			filter.Run(t, meshConfiguration, func(t *testing.T, p *filtertest.Proxy) {
				start(t, p)
				tell(p, "200", `"1"`, text)
				if err := p.SetProperty(strings.Split(functionProperty, "\x00"), []byte("shop/function")); err != nil {
					t.Fatal(err)
				}
				if o := ask(t, p, cluster); endpoint(o) != near || len(o.Calls) != 0 {
					t.Errorf("without an input: %+v", o)
				}
				inputs := []string{"xds", "cluster_metadata", "filter_metadata", "headstart", "prefetch"}
				if err := p.SetProperty(inputs, []byte(c.function)); err != nil {
					t.Fatal(err)
				}
				o := ask(t, p, cluster)
				input := value(o.Headers, filterapi.HeaderInput)
				if endpoint(o) != c.to || len(o.Calls) != c.hints || input != c.input {
					t.Errorf("with an input: %+v", o)
				}
			})
		})
	}
}

// Headstart's own routes send requests that name an input to the daemon: that cluster is no function's.
func TestARequestThatNamesAnInputIsHinted(t *testing.T) {
	cluster, text := config(t)
	run(t, text, func(t *testing.T, p *filtertest.Proxy) {
		inputs := []string{"xds", "route_metadata", "filter_metadata", "headstart", "prefetch"}
		if err := p.SetProperty(inputs, []byte(`{"name":"shop/fixed","input":"s3://models/latest.bin"}`)); err != nil {
			t.Fatal(err)
		}
		o := ask(t, p, "headstart-ingress")
		if endpoint(o) != "" || len(o.Calls) != 1 || value(o.Headers, "x-headstart-input") != "s3://models/latest.bin" {
			t.Errorf("to the daemon: %+v", o)
		}
		if o := ask(t, p, cluster); endpoint(o) != near || len(o.Calls) != 0 {
			t.Errorf("to an instance: %+v", o)
		}
	})
}
