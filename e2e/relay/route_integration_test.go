//go:build integration

package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacconfig "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbac "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/policy"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// picked is a bed whose gateway picks one of two places for each request: weights have the far
// one only get requests, and expectations are in favour of the near one.
type picked struct {
	*bed
	near, far *backend
	// status is what the near one answers.
	status atomic.Int32
}

// pickedState is at without an input.
func pickedState(addresses ...string) platform.State {
	st := at(addresses...)
	st.Functions[0].Policy = policy.Policy{}
	return st
}

// chosen is how many requests the daemon has counted, by who chose their instance.
type chosen struct{ picked, elsewhere, weights int }

func (p *picked) chosen() (c chosen) {
	p.t.Helper()
	families, err := p.metrics.Gather()
	if err != nil {
		p.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "headstart_relay_requests_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			n := int(m.GetCounter().GetValue())
			switch m.GetLabel()[0].GetValue() {
			case "picked":
				c.picked = n
			case "elsewhere":
				c.elsewhere = n
			case "weights":
				c.weights = n
			}
		}
	}
	return c
}

func newPicked(t *testing.T, options ...func(*bed)) *picked {
	t.Helper()
	p := &picked{bed: newBed(t, options...)}
	p.status.Store(http.StatusOK)
	p.near = p.listen("tcp", "127.0.0.1:0", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(p.status.Load()))
		_, _ = io.WriteString(w, "near")
	})
	p.far = p.listen("tcp", "127.0.0.1:0", says("far"))
	expected := []filterapi.Expected{
		{Service: time.Millisecond, Workers: 8}, {RTT: 50 * time.Millisecond, Service: time.Millisecond, Workers: 8},
	}
	p.weights = routing.Weights{"default/fire": {
		Endpoints: []netip.AddrPort{netip.MustParseAddrPort(p.near.address), netip.MustParseAddrPort(p.far.address)},
		Rows:      map[string]routing.Row{"edge": {Weights: []uint32{0, 1000}, Expected: expected}},
	}}
	p.update(pickedState(p.near.address, p.far.address))
	return p
}

// ask sends requests, one after the other, and returns how many each place has answered.
func (p *picked) ask(requests int) map[string]int {
	p.t.Helper()
	heard := map[string]int{}
	for range requests {
		client.CloseIdleConnections() // each of the gateway's workers hears for itself what to expect
		heard[p.get()]++
	}
	return heard
}

// settles waits until all of some requests are answered by one.
func (p *picked) settles(by string) {
	p.t.Helper()
	p.eventually("all are answered by "+by, func() bool { return p.ask(10)[by] == 10 })
}

// A mesh's gateway picks per request, by its own node's row, with what the daemon hands it.
func TestAMeshsGatewayPicksPerRequest(t *testing.T) {
	p := newPicked(t)
	p.startEnvoy(p.plugin())
	p.settles("near")
	answer, err := client.Get(p.url)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	for name := range answer.Header {
		if strings.HasPrefix(strings.ToLower(name), "x-headstart") {
			t.Errorf("the client is told %s", name)
		}
	}
	// A client cannot name one.
	for range 10 {
		if got := p.get("x-headstart-session", "MTI3LjAuMC4xOjE="); got != "near" {
			t.Errorf("a forged name: %s", got)
		}
	}

	// What is gone gets nothing, and what changes counts.
	p.update(pickedState(p.far.address))
	p.settles("far")
	p.update(pickedState(p.near.address, p.far.address))
	p.settles("near")

	// Without the control plane, a fresh gateway and a fresh daemon have it, too.
	p.stopControlPlane()
	p.stopEnvoy()
	p.stopDaemon()
	p.startDaemon()
	p.startEnvoy(p.plugin())
	p.settles("near")
	// And without the daemon it goes on.
	p.stopDaemon()
	if heard := p.ask(50); heard["near"] != 50 {
		t.Errorf("without the daemon, %v", heard)
	}
}

// A daemon that an attacker has taken over has expectations of a function with an input, and a daemon that has not
// heard of the input has them, too. No instance gets a request without its input, in any of the gateway's workers.
func TestAttackExpectationsOfAFunctionWithAnInput(t *testing.T) {
	p := newPicked(t, takesInput)
	p.listen("unix", p.socket("ingress.sock"), says("daemon"))
	p.startEnvoy(p.plugin())
	p.eventually("the workers and the main thread have them", func() bool { return p.known.Load() > workers })
	for range 50 {
		client.CloseIdleConnections()
		if got := p.get("x-key", "a"); got != "daemon" {
			t.Errorf("with an input: %s", got)
		}
		if got := p.get(); got != "far" { // by weight
			t.Errorf("without one: %s", got)
		}
	}
}

// What is gone for a moment only gets requests again, however short that moment is.
func TestWhatComesBackIsPicked(t *testing.T) {
	const times = 20
	p := newPicked(t)
	p.startEnvoy(p.plugin())
	p.settles("near")
	for range times {
		p.update(pickedState(p.far.address))
		p.eventually("one is answered far away", func() bool { return p.get() == "far" })
		p.update(pickedState(p.near.address, p.far.address))
		p.settles("near")
	}
}

// No request fails because the filters, or what to expect, are not there.
func TestAMeshsGatewayWithoutExpectations(t *testing.T) {
	for name, start := range map[string]func(*picked){
		"no filters": func(p *picked) { p.startEnvoy(nil) },
		"a daemon that is older": func(p *picked) {
			p.stopDaemon()
			p.older = true
			p.startDaemon()
			p.startEnvoy(p.plugin())
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPicked(t)
			start(p)
			p.settles("far") // by weight
			if heard := p.ask(50); heard["far"] != 50 {
				t.Errorf("heard %v", heard)
			}
			_, requests := p.far.request()
			p.eventually("all are counted as chosen by weight", func() bool { return p.chosen() == chosen{weights: requests} })
		})
	}
}

// A gateway whose daemon has not said what to expect, or is away, has it as soon as the daemon says it.
func TestADaemonThatSaysItLater(t *testing.T) {
	p := newPicked(t, func(b *bed) { b.older = true })
	p.startEnvoy(p.plugin())
	p.settles("far")
	p.stopDaemon()
	p.older = false
	p.startDaemon()
	p.settles("near")
	p.stopDaemon()
	p.update(pickedState(p.far.address))
	p.startDaemon()
	p.settles("far")
	p.update(pickedState(p.near.address, p.far.address))
	p.settles("near")
}

// A daemon that an attacker has taken over offers its gateway a filter of the attacker's, by each way in which an
// Envoy asks for one. This one refuses all requests; it might be a module. The gateway asks for none: it has
// endpoints and expectations from its daemon, and code from Istio, in objects that no daemon can write.
func TestAttackADaemonGivesAGatewayCode(t *testing.T) {
	var asked atomic.Int64
	evil, err := anypb.New(&rbac.RBAC{Rules: &rbacconfig.RBAC{}})
	if err != nil {
		t.Fatal(err)
	}
	offer := func(server any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if !strings.Contains(info.FullMethod, "ExtensionConfig") && !strings.Contains(info.FullMethod, "Aggregated") {
			return handle(server, s)
		}
		for {
			var q discovery.DeltaDiscoveryRequest
			if err := s.RecvMsg(&q); err != nil {
				return err
			}
			asked.Add(1)
			for _, name := range q.GetResourceNamesSubscribe() {
				filter, err := anypb.New(&core.TypedExtensionConfig{Name: name, TypedConfig: evil})
				if err != nil {
					return err
				}
				if err := s.SendMsg(&discovery.DeltaDiscoveryResponse{TypeUrl: resource.ExtensionConfigType, Nonce: "1",
					Resources: []*discovery.Resource{{Name: name, Version: "1", Resource: filter}}}); err != nil {
					return err
				}
			}
		}
	}
	p := newPicked(t, func(b *bed) {
		b.daemon = append(b.daemon, grpc.StreamInterceptor(offer),
			grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.Unimplemented, "unknown") }))
	})
	p.startEnvoy(p.plugin())
	p.eventually("the filters are at work, or the attacker's", func() bool { return p.ask(10)["near"] == 10 || asked.Load() > 0 })
	if heard := p.ask(50); heard["near"] != 50 || asked.Load() > 0 {
		t.Errorf("the gateway asks its daemon %d times for filters; requests are answered %v", asked.Load(), heard)
	}
}

// withOutliers is what Istio makes of a DestinationRule's outlierDetection, with less patience.
func withOutliers(b *bed) {
	b.outliers = "outlier_detection: {consecutive_5xx: 5, enforcing_consecutive_5xx: 100, interval: 0.2s, base_ejection_time: 3s, max_ejection_percent: 100, enforcing_success_rate: 0}"
}

// Envoy ejects an instance that fails: from then on it gets no request, though it would be the one
// to pick. When it is let in again, it gets them again.
func TestWhatIsEjectedIsNotPicked(t *testing.T) {
	const ejected = 3 * time.Second
	p := newPicked(t, withOutliers)
	p.startEnvoy(p.plugin())
	p.settles("near")
	// An application's error is an answer to the filter, and not to Envoy.
	p.status.Store(http.StatusInternalServerError)
	p.eventually("it is ejected", func() bool { return p.get() == "far" })
	_, before := p.near.request()
	for began := time.Now(); time.Since(began) < ejected/2; {
		if got := p.get(); got != "far" {
			t.Fatalf("while the near one is ejected: %s", got)
		}
	}
	if _, after := p.near.request(); after != before {
		t.Errorf("while it is ejected, it has had %d requests", after-before)
	}
	p.status.Store(http.StatusOK)
	p.settles("near")
}

// Of each request it is told which instance was picked, and which one had it: on its span, and by
// the daemon's metrics. The two differ where Envoy passes over what was picked.
func TestTheChoiceIsTold(t *testing.T) {
	traces := trace.NewStore()
	p := newPicked(t, withOutliers, func(b *bed) {
		g := grpc.NewServer()
		collector.RegisterTraceServiceServer(g, trace.Plain(traces))
		b.collector, _ = b.serve(g, "unix", b.socket("otlp.sock"))
	})
	p.startEnvoy(p.plugin())
	p.settles("near")

	requests := 0
	// ask returns which instance was picked for a request, and which one had it.
	ask := func() (picked, went string) {
		t.Helper()
		requests++
		id := fmt.Sprintf("%032x", requests)
		p.get("traceparent", "00-"+id+"-00f067aa0ba902b7-01")
		p.eventually("the span of the request to an instance", func() bool {
			told, _ := traces.Get(id)
			for _, span := range told.Spans {
				if at, ok := span.Attributes[string(tracing.UpstreamAddress)].(string); ok {
					picked, _ = span.Attributes[string(tracing.Endpoint)].(string)
					went = at
				}
			}
			return went != ""
		})
		return picked, went
	}
	if picked, went := ask(); picked != p.near.address || went != p.near.address {
		t.Errorf("picked %q, went to %q; both are %s", picked, went, p.near.address)
	}

	p.status.Store(http.StatusInternalServerError)
	p.eventually("one goes elsewhere", func() bool {
		picked, went := ask()
		return picked == p.near.address && went == p.far.address
	})
	_, near := p.near.request()
	_, far := p.far.request()
	p.eventually("all are counted", func() bool { c := p.chosen(); return c.picked+c.elsewhere+c.weights == near+far })
	if c := p.chosen(); c.picked < near || c.elsewhere == 0 {
		t.Errorf("counted %+v; the near one had %d, the far one %d", c, near, far)
	}
}
