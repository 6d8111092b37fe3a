package xds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"pgregory.net/rapid"
)

func endpoints(version string) map[key]string {
	return map[key]string{{resource.EndpointType, "default/a"}: version}
}

func sending(nonce string, names ...string) *discovery.DeltaDiscoveryResponse {
	r := &discovery.DeltaDiscoveryResponse{TypeUrl: resource.EndpointType, Nonce: nonce}
	for _, n := range names {
		r.Resources = append(r.Resources, &discovery.Resource{Name: n})
	}
	return r
}

func acking(nonce string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: nonce}
}

// waiting calls settled in a bubble and reports its result on the channel.
func waiting(ctx context.Context, l *ledger) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.settled(ctx) }()
	synctest.Wait()
	return done
}

func isDone(done <-chan error) bool {
	synctest.Wait()
	return len(done) > 0
}

func TestSettledWaitsForTheConnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.publish("edge", endpoints("v1"))
		l.publish("away", endpoints("v1"))
		l.open(1, "edge", build{wasm: true})
		l.open(2, "unknown", build{wasm: true})
		done := waiting(t.Context(), l)
		l.send(1, 1, sending("n1", "default/a"))
		if isDone(done) {
			t.Fatal("settled before the acknowledgement")
		}
		if _, err := l.receive(1, acking("n1")); err != nil {
			t.Fatal(err)
		}
		if !isDone(done) {
			t.Fatal("not settled after the acknowledgement")
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A stream of updates does not keep a caller waiting who came before them.
func TestSettledIgnoresLaterUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		l.open(1, "edge", build{wasm: true})
		l.publish("edge", endpoints("v1"))
		done := waiting(t.Context(), l)
		l.publish("edge", endpoints("v2"))
		l.send(1, 2, sending("n1", "default/a"))
		l.publish("edge", endpoints("v3"))
		if _, err := l.receive(1, acking("n1")); err != nil || !isDone(done) {
			t.Errorf("error %v, settled %t", err, isDone(done))
		}
		if later := waiting(t.Context(), l); isDone(later) {
			t.Error("settled although the last update is not acknowledged")
		} else {
			l.close(1)
			<-later
		}
	})
}

func TestSettledEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(l *ledger, cancel func())
		want string
	}{
		"the gateway goes": {func(l *ledger, _ func()) { l.close(1) }, ""},
		"the caller goes": {func(_ *ledger, cancel func()) { cancel() },
			"waiting for the gateways edge to take over their configuration: context canceled"},
		"the gateway refuses": {func(l *ledger, _ func()) {
			r := acking("n1")
			r.ErrorDetail = &status.Status{Message: "no such\xff file"}
			if refusal, err := l.receive(1, r); refusal != "no such file" || err != nil {
				panic(fmt.Sprint(refusal, err))
			}
		}, "gateway edge refused its ClusterLoadAssignment: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLedger()
				l.publish("edge", endpoints("v1"))
				l.open(1, "edge", build{wasm: true})
				l.send(1, 1, sending("n1", "default/a"))
				ctx, cancel := context.WithCancel(t.Context())
				done := waiting(ctx, l)
				c.end(l, cancel)
				if err := <-done; c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				cancel()
			})
		})
	}
}

func TestLedgerIsBounded(t *testing.T) {
	l := newLedger()
	l.open(1, "edge", build{wasm: true})
	for i := range maxUnacknowledged + 1 {
		if _, err := l.receive(1, acking("never sent")); err != nil {
			t.Fatal(err)
		}
		l.send(1, 1, sending(fmt.Sprint(i)))
	}
	if _, err := l.receive(1, acking("never sent")); err == nil {
		t.Error("a peer that acknowledges nothing goes on")
	}
	refusal := acking("0")
	refusal.ErrorDetail = &status.Status{Message: strings.Repeat("x", 1<<20)}
	l = newLedger()
	l.open(1, "edge", build{wasm: true})
	l.send(1, 1, sending("0"))
	if words, err := l.receive(1, refusal); err != nil || len(words) != maxRefusalBytes {
		t.Errorf("kept %d bytes, error %v", len(words), err)
	}
}

// A model of one gateway and its server: whatever they do in whatever order, the ledger
// says settled only if the gateway has what was published last and no older version of it
// on the way, and says it in the end.
func TestLedgerProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const stream = 1
		l := newLedger()
		l.open(stream, "edge", build{wasm: true})
		var (
			nonce   int
			content = map[key]string{}
			wanted  = map[string]string{} // versions published last
			told    = map[string]string{} // what the server has sent
			has     = map[string]string{} // what the gateway has
			queue   []func()              // responses that are not on their way yet
			flight  []func()              // those that are
		)
		receive := func(r *discovery.DeltaDiscoveryRequest) {
			r.TypeUrl = resource.ClusterType
			if _, err := l.receive(stream, r); err != nil {
				t.Fatal(err)
			}
		}
		// respond is the snapshot cache: it tells the difference, for later sending.
		respond := func() {
			r := &discovery.DeltaDiscoveryResponse{TypeUrl: resource.ClusterType, Nonce: fmt.Sprint(nonce)}
			nonce++
			for name, v := range wanted {
				if told[name] != v {
					r.Resources = append(r.Resources, &discovery.Resource{Name: name, Version: v})
				}
			}
			for name := range told {
				if _, ok := wanted[name]; !ok {
					r.RemovedResources = append(r.RemovedResources, name)
				}
			}
			if len(r.Resources)+len(r.RemovedResources) == 0 {
				return
			}
			told = wanted
			seq, state := l.seq, wanted
			queue = append(queue, func() {
				l.send(stream, seq, r)
				flight = append(flight, func() {
					has = state
					receive(&discovery.DeltaDiscoveryRequest{ResponseNonce: r.Nonce})
				})
			})
		}
		next := func(steps *[]func()) {
			if len(*steps) > 0 {
				step := (*steps)[0]
				*steps = (*steps)[1:]
				step()
			}
		}
		settled := func() bool {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			err := l.settled(ctx)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			return err == nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				content = maps.Clone(content)
				k := key{resource.ClusterType, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")}
				if rapid.Bool().Draw(t, "remove") {
					delete(content, k)
				} else {
					content[k] = rapid.SampledFrom([]string{"cold", "hot"}).Draw(t, "content")
				}
				p, _ := l.publish("edge", content)
				wanted = map[string]string{}
				for k := range content {
					wanted[k.name] = p.version(k)
				}
			},
			"respond": func(*rapid.T) { respond() },
			"send":    func(*rapid.T) { next(&queue) },
			"ack":     func(*rapid.T) { next(&flight) },
			"reconnect": func(*rapid.T) {
				l.close(stream)
				l.open(stream, "edge", build{wasm: true})
				told, queue, flight = has, nil, nil
				receive(&discovery.DeltaDiscoveryRequest{InitialResourceVersions: has})
			},
			"": func(t *rapid.T) {
				if !settled() {
					return
				}
				if !maps.Equal(has, wanted) {
					t.Fatalf("settled, but the gateway has %v of %v", has, wanted)
				}
				for name, v := range wanted {
					if told[name] != v {
						t.Fatalf("settled, but %s goes to %s instead of %s", name, told[name], v)
					}
				}
			},
		})
		respond()
		for len(queue)+len(flight) > 0 {
			next(&queue)
			next(&flight)
		}
		if !settled() {
			t.Fatalf("not settled, but the gateway has %v of %v", has, wanted)
		}
	})
}
