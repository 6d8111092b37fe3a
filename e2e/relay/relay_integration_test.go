//go:build integration

package relay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(int) { client.CloseIdleConnections() }))
}

const fireHost = "fire.default.svc.cluster.local"

// at is the platform's state with the function ready at these addresses.
func at(addresses ...string) platform.State {
	st := platform.State{Functions: []platform.Function{{Name: "default/fire", Hosts: []string{fireHost}, Service: fireHost, ServicePort: 80,
		Policy: policy.Policy{Input: "s3://videos/{header.x-key}"}}}}
	for _, a := range addresses {
		st.Instances = append(st.Instances, platform.Instance{
			ID: a, Function: "default/fire", Node: "edge", Phase: platform.Ready, Address: netip.MustParseAddrPort(a),
		})
	}
	return st
}

// plugin is the prefetch filter's configuration.
func (b *bed) plugin() []byte {
	b.t.Helper()
	data, err := istio.PluginConfig()
	if err != nil {
		b.t.Fatal(err)
	}
	return bytes.ReplaceAll(data, []byte(istio.IngressSocket), []byte(b.socket("ingress.sock")))
}

// takesInput has the function's cluster say what inputs its requests may name.
func takesInput(b *bed) { b.inputs = at().Functions[0].Policy.Templates() }

// comes waits until the gateway's answers are of who.
func (b *bed) comes(who string, headers ...string) {
	b.t.Helper()
	var got string
	b.eventually("an answer of "+who, func() bool { got = b.get(headers...); return got == who })
}

func TestGatewayGoesWhereTheFunctionIs(t *testing.T) {
	b := newBed(t, takesInput)
	ingress, hints := b.listen("unix", b.socket("ingress.sock"), says("daemon")), b.listenForHints()
	one, two := b.listen("tcp", "127.0.0.1:0", says("one")), b.listen("tcp", "127.0.0.1:0", says("two"))
	b.update(at())
	b.startEnvoy(b.plugin())
	b.comes("daemon")
	b.update(at(one.address))
	b.comes("one")

	// With an input: to the daemon, hot or cold, and with a hint.
	forged := []string{"x-headstart-function", "default/other", "x-headstart-endpoint", two.address, "x_headstart_input", "s3://secret/a"}
	if got := b.get(append(forged, "x-key", "a")...); got != "daemon" {
		t.Errorf("with an input: %s", got)
	}
	r, _ := ingress.request()
	for name, want := range map[string]string{"x-headstart-function": "default/fire", "x-headstart-input": "s3://videos/a", "x-headstart-endpoint": b.socket("ingress.sock"), "x_headstart_input": ""} {
		if got := strings.Join(r.Header[http.CanonicalHeaderKey(name)], ","); got != want {
			t.Errorf("the daemon gets %s: %q, want %q", name, got, want)
		}
	}
	b.eventually("a hint", func() bool { _, n := hints.request(); return n > 0 })
	if hint, n := hints.request(); n != 1 || hint.Header.Get("x-headstart-request") != r.Header.Get("x-headstart-request") || hint.Header.Get("x-headstart-function") != "default/fire" {
		t.Errorf("%d hints, the last %v", n, hint.Header)
	}
	// Without: straight to the instance, whatever the client claims.
	if got := b.get(forged...); got != "one" {
		t.Errorf("a forged endpoint: %s", got)
	}
	if r, _ := one.request(); r.Header.Get("x-headstart-function") != "default/fire" || r.Header.Get("x-headstart-key") != "" || r.Header.Get("x-headstart-endpoint") != "any" {
		t.Errorf("the instance gets %v", r.Header)
	}

	b.update(at(one.address, two.address))
	b.comes("two")
	b.comes("one")
	b.update(at())
	b.comes("daemon")
	b.update(at(two.address))
	b.comes("two")
	b.update(platform.State{}) // no function any more: its cluster is the mesh's to take away
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; {
		if got := b.get(); got != "two" {
			t.Fatalf("a function that is gone: %s", got)
		}
	}
	b.update(at(one.address))
	b.comes("one")
}

// The filter finds the function in its cluster's metadata before the request is routed for good, with the oldest
// Envoy as well, and what is no function's stays as it is.
func TestTheFilterReadsTheClustersMetadata(t *testing.T) {
	for _, program := range []string{"envoy", "envoy-oldest"} {
		t.Run(program, func(t *testing.T) {
			b := newBed(t, takesInput, func(b *bed) {
				b.program = program
				b.routes = `- {name: other, domains: [other.example], routes: [{match: {prefix: /}, route: {cluster: other}}]}`
			})
			ingress, hints := b.listen("unix", b.socket("ingress.sock"), says("daemon")), b.listenForHints()
			other := b.listen("tcp", "127.0.0.1:0", says("other"))
			host, port, _ := strings.Cut(other.address, ":")
			b.clusters = fmt.Sprintf(`- {name: other, connect_timeout: 1s, load_assignment: {cluster_name: other, endpoints: [{lb_endpoints: [{endpoint: {
      address: {socket_address: {address: %s, port_value: %s}}}}]}]}}`, host, port)
			b.update(at())
			b.startEnvoy(b.plugin())
			b.comes("daemon")
			b.get("x-key", "a")
			if r, _ := ingress.request(); r.Header.Get("x-headstart-input") != "s3://videos/a" {
				t.Errorf("the daemon gets %v", r.Header)
			}
			b.eventually("a hint", func() bool { _, n := hints.request(); return n == 1 })
			b.ask("other.example")
			r, n := other.request()
			if n != 1 {
				t.Fatalf("what is no function's had %d requests", n)
			}
			for name := range r.Header {
				if strings.HasPrefix(strings.ToLower(name), "x-headstart-") {
					t.Errorf("a request for no function has %s", name)
				}
			}
		})
	}
}

// Without the filter, requests that may name an input go to the daemon, hot or cold: it names it.
func TestAGatewayWithoutTheFilterAsksTheDaemon(t *testing.T) {
	b := newBed(t)
	ingress := b.listen("unix", b.socket("ingress.sock"), says("daemon"))
	one := b.listen("tcp", "127.0.0.1:0", says("one"))
	b.update(at(one.address))
	b.startEnvoy(nil)
	b.comes("one") // so the relay has heard of it
	b.stopEnvoy()
	takesInput(b)
	b.startEnvoy(nil)
	for range 20 {
		if got := b.get("x-key", "a", "x-headstart-endpoint", one.address); got != "daemon" {
			t.Fatalf("it goes to %s", got)
		}
	}
	if r, _ := ingress.request(); r.Header.Get("x-headstart-function") != "default/fire" || r.Header.Get("x-headstart-input") != "" || r.Header.Get("x-key") != "a" {
		t.Errorf("the daemon gets %v", r.Header)
	}
}

// A gateway that starts while the control plane is away has what the daemon has, and what
// a daemon has that started then, too.
func TestFreshGatewayWithoutControlPlane(t *testing.T) {
	b := newBed(t)
	one, two := b.listen("tcp", "127.0.0.1:0", says("one")), b.listen("tcp", "127.0.0.1:0", says("two"))
	b.update(at(one.address))
	b.startEnvoy(nil)
	b.comes("one")
	b.stopControlPlane()
	b.stopEnvoy()
	b.startEnvoy(nil)
	b.comes("one")
	b.stopDaemon()
	for range 20 {
		if got := b.get(); got != "one" {
			t.Fatalf("without the daemon: %s", got)
		}
	}
	b.stopEnvoy()
	b.startDaemon()
	b.startEnvoy(nil)
	b.comes("one")
	b.startControlPlane()
	b.update(at(two.address))
	b.comes("two")
}

func TestRequestsAreActivity(t *testing.T) {
	for name, filter := range map[string]bool{"with the filter": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			finish := make(chan struct{})
			one := b.listen("tcp", "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("x-slow") != "" {
					<-finish
				}
				_, _ = io.WriteString(w, "one")
			})
			b.update(at(one.address))
			var plugin []byte
			if filter {
				plugin = b.plugin()
			}
			b.startEnvoy(plugin)
			b.comes("one")
			b.eventually("the function is in use", func() bool { return b.activity.of("default/fire") })
			b.eventually("the function is no longer in use", func() bool { return !b.activity.of("default/fire") })
			done := make(chan string, 1)
			go func() { done <- b.get("x-slow", "1") }()
			began := time.Now()
			b.eventually("the function is in use", func() bool { return b.activity.of("default/fire") })
			t.Logf("a request is activity after %v", time.Since(began).Round(time.Millisecond))
			// long is longer than a function stays active by itself; gap is what a machine may hold Envoy's words up for.
			const long, gap = 5 * time.Second, time.Second
			seen := time.Now()
			b.eventually("the function stays in use", func() bool {
				active := b.activity.of("default/fire")
				if active {
					seen = time.Now()
				} else if time.Since(seen) > gap {
					t.Fatalf("not in use for %v, %v after a request's start", time.Since(seen), time.Since(began))
				}
				return active && time.Since(began) > long
			})
			close(finish)
			if got := <-done; got != "one" {
				t.Error(got)
			}
			b.eventually("the function is no longer in use", func() bool { return !b.activity.of("default/fire") })
		})
	}
}

// sums are what a gateway's signals come to over some time.
type sums struct {
	ended, failed, busy, took float64 // requests, and seconds
	at                        map[string]bool
}

// sum adds the signals up since they were asked for last, until what they say is so.
func (b *bed) sum(last *time.Time, what string, is func(sums) bool) (s sums) {
	b.t.Helper()
	s.at = map[string]bool{}
	b.eventually(what, func() bool {
		now := time.Now()
		seconds := now.Sub(*last).Seconds()
		*last = now
		for _, f := range b.relay.Signals(now) {
			for _, e := range f.GetEndpoints() {
				s.at[f.GetFunction()+" "+e.GetAddress()] = true
				s.ended += e.GetRpsFractional() * seconds
				s.failed += e.GetEps() * seconds
				s.busy += e.GetNamedMetrics()["in_flight"] * seconds
				s.took += e.GetNamedMetrics()["sojourn_time"] * e.GetRpsFractional() * seconds
			}
		}
		return is(s)
	})
	return s
}

// What the gateways send to instances themselves is known by function and instance: how many
// requests, how many fail, and how long instances have them. Envoy's own words are the test.
func TestHotRequestsAreSignals(t *testing.T) {
	for _, program := range []string{"envoy", "envoy-oldest"} {
		t.Run(program, func(t *testing.T) { hotRequestsAreSignals(t, program) })
	}
}

func hotRequestsAreSignals(t *testing.T, program string) {
	const hold, stay = 2500 * time.Millisecond, 500 * time.Millisecond
	b := newBed(t, func(b *bed) { b.program = program })
	b.listen("unix", b.socket("ingress.sock"), says("daemon"))
	waits, left := make(chan struct{}), make(chan struct{})
	one := b.listen("tcp", "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("x-do") {
		case "fail":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "hold":
			time.Sleep(hold)
		case "break":
			panic(http.ErrAbortHandler)
		case "wait":
			close(waits)
			<-r.Context().Done()
			close(left)
		}
		_, _ = io.WriteString(w, "one")
	})
	b.update(at())
	b.startEnvoy(nil)
	b.comes("daemon") // and is counted by the daemon
	b.update(at(one.address))
	last := time.Now()
	b.relay.Signals(last)
	b.comes("one")
	near := func(got, want float64) bool { return got > want-0.01 && got < want+0.01 }
	_, came := one.request()
	b.sum(&last, "what came so far", func(s sums) bool { return near(s.ended, float64(came)) })

	for range 20 {
		b.get()
	}
	for range 3 {
		b.get("x-do", "fail")
	}
	b.get("x-do", "break")
	if s := b.sum(&last, "the short ones", func(s sums) bool { return near(s.ended, 24) }); !near(s.failed, 4) || len(s.at) != 1 || !s.at["default/fire "+one.address] {
		t.Errorf("%+v", s)
	}
	b.get("x-do", "hold")
	if s := b.sum(&last, "the long one", func(s sums) bool { return near(s.ended, 1) }); s.took < hold.Seconds()-0.01 || s.busy > s.took+0.5 || s.failed > 0.01 {
		t.Errorf("%+v of a request of %v", s, hold)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	go func() {
		select {
		case <-waits:
			time.AfterFunc(stay, leave)
		case <-ctx.Done():
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-do", "wait")
	if answer, err := client.Do(r); err == nil {
		answer.Body.Close()
		t.Error("it was answered")
	}
	select {
	case <-left:
	case <-time.After(patience):
		t.Fatal("the instance does not learn that the client has left")
	}
	s := b.sum(&last, "the one whose client left", func(s sums) bool { return s.busy > 0 })
	if s.ended > 0.01 || s.failed > 0.01 || s.busy < stay.Seconds()-0.1 {
		t.Errorf("%+v of a request whose client left", s)
	}
}

// From the control plane's knowledge to an answer by the new instance, as a busy client
// sees it.
func TestLatencyOfAChange(t *testing.T) {
	const changes = 200
	b := newBed(t)
	b.listen("unix", b.socket("ingress.sock"), says("daemon"))
	one, two := b.listen("tcp", "127.0.0.1:0", says("one")), b.listen("tcp", "127.0.0.1:0", says("two"))
	b.update(at(one.address))
	b.startEnvoy(nil)
	b.comes("one")
	var took []time.Duration
	for i := range changes {
		next, who := two.address, "two"
		if i%2 == 1 {
			next, who = one.address, "one"
		}
		began := time.Now()
		b.update(at(next))
		for b.get() != who {
			if time.Since(began) > patience {
				t.Fatalf("change %d has not come into effect after %v", i, patience)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	t.Logf("a change is in effect after p50 %v, p99 %v, at most %v", took[changes/2], took[changes*99/100], took[changes-1])
}
