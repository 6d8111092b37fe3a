package relay

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// refuse refuses what comes next, with these words.
func (e *envoy) refuse(words string) {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: words}})
}

// refusing is a rig that has been told of one function, and what is told of refusals.
func refusing(t *testing.T) (*rig, *upstream, chan *nodeapi.GatewayRefusals) {
	t.Helper()
	told := make(chan *nodeapi.GatewayRefusals, 100)
	r := rigOf(t, Config{Refused: func(m *nodeapi.GatewayRefusals) { told <- m }})
	u := r.controlPlane.accept(t)
	u.recv()
	u.accepted(nil, assigned(t, fire, "1", "10.0.0.1"))
	return r, u, told
}

func wantRefused(t *testing.T, got *nodeapi.GatewayRefusals, words ...string) {
	t.Helper()
	want := &nodeapi.GatewayRefusals{}
	for _, w := range words {
		want.Refusals = append(want.Refusals, &nodeapi.GatewayRefusal{TypeUrl: resource.EndpointType, Resources: []string{fire}, Words: w})
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// What a gateway refuses is told, until it takes a later version or is gone. Meanwhile it is served
// on.
func TestRefusalsAreTold(t *testing.T) {
	r, u, told := refusing(t)
	first, second := r.eds().subscribe(fire), r.ads().subscribe(fire)
	first.refuse("malformed IP address")
	wantRefused(t, <-told, "malformed IP address")
	second.refuse("malformed IP address") // one of the same node: it is the same
	wantRefused(t, <-told, "malformed IP address")
	u.accepted(nil, assigned(t, fire, "2", "10.0.0.2"))
	first.want(fire + " 10.0.0.2")
	second.refuse("no room")
	for m := range told { // each is told of by itself, or both together
		if len(m.GetRefusals()) == 1 && m.GetRefusals()[0].GetWords() == "no room" {
			wantRefused(t, m, "no room")
			break
		}
	}
	if err := second.stream.(interface{ CloseSend() error }).CloseSend(); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, <-told)
	want := `
# HELP headstart_relay_refusals_total What gateways refused of what the node told them, by the type of resource.
# TYPE headstart_relay_refusals_total counter
headstart_relay_refusals_total{type="ClusterLoadAssignment"} 3
`
	if err := testutil.CollectAndCompare(r.relay.cfg.Metrics.refused, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

// What gateways say is cut, and told once a second at most, however often it changes.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, u, told := refusing(t)
		var gateways []*envoy
		for i := range 50 {
			e := r.eds().subscribe(fire)
			e.refuse(fmt.Sprintf("%03d", i) + "\x1b[2J" + strings.Repeat("é", 20_000))
			gateways = append(gateways, e)
		}
		time.Sleep(2 * refusalsApart)
		var m *nodeapi.GatewayRefusals
		if n := len(told); n < 1 || n > 2 {
			t.Errorf("told %d times", n)
		}
		for len(told) > 0 {
			m = <-told
		}
		if len(m.GetRefusals()) != 20 || m.GetMore() != 30 {
			t.Errorf("%d refusals, and %d more", len(m.GetRefusals()), m.GetMore())
		}
		for _, one := range m.GetRefusals() {
			if n := len(one.GetWords()); n > 512 || n < 500 {
				t.Errorf("%d bytes of words", n)
			}
		}
		if _, err := proto.Marshal(m); err != nil {
			t.Error(err)
		}
		u.accepted(nil, assigned(t, fire, "2", "10.0.0.2"))
		for _, e := range gateways {
			e.want(fire + " 10.0.0.2")
		}
		time.Sleep(2 * refusalsApart)
		for len(told) > 0 {
			m = <-told
		}
		wantRefused(t, m)
	})
}

// The names are those of what was refused, and left out where the gateway's words have to say it.
func TestNamesOfWhatIsRefused(t *testing.T) {
	g := &guarded{relay: newRelay(t, nil, "", nil), typeURL: resource.EndpointType, sent: map[string]sentLast{}}
	for _, c := range []struct {
		names []string
		nonce string
		want  []string
	}{
		{[]string{"a", "b", "c"}, "1", []string{"a", "b", "c"}},
		{[]string{"a", "b", "c", "d"}, "1", nil},
		{[]string{"a"}, "0", nil}, // of one before
	} {
		r := &discovery.DeltaDiscoveryResponse{TypeUrl: resource.EndpointType, Nonce: "1"}
		for _, name := range c.names {
			r.Resources = append(r.Resources, &discovery.Resource{Name: name})
		}
		g.note(r)
		if err := g.check(&discovery.DeltaDiscoveryRequest{ResponseNonce: c.nonce, ErrorDetail: &rpcstatus.Status{Message: "no"}}); err != nil {
			t.Fatal(err)
		}
		got := g.relay.refusals.all().GetRefusals()
		if len(got) != 1 || got[0].GetWords() != "no" || !cmp.Equal(got[0].GetResources(), c.want) {
			t.Errorf("%q: %v", c.names, got)
		}
	}
	g.close()
	if err := g.check(&discovery.DeltaDiscoveryRequest{ErrorDetail: &rpcstatus.Status{Message: "late"}}); err != nil {
		t.Fatal(err)
	}
	if got := g.relay.refusals.all().GetRefusals(); len(got) > 0 {
		t.Errorf("after the stream's end: %v", got)
	}
}
