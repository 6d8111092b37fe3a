package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/signals"
)

// dial serves a Server that knows the peer as "edge", and connects to it.
func dial(t *testing.T, onLoad func(string, []signals.Load)) (*Server, *grpc.ClientConn) {
	t.Helper()
	s := New(Config{ListenPort: 8080, OnLoad: onLoad, Verify: func(_ context.Context, id string) error {
		if id != edge.ID {
			return errors.New("another's certificate")
		}
		return nil
	}}, slog.New(slog.DiscardHandler))
	return s, dialTo(t, s.Register)
}

// dialTo serves what register adds, and connects to it.
func dialTo(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	g := grpc.NewServer(ServerOptions()...)
	register(g)
	l := bufconn.Listen(1 << 20)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { g.Stop(); wg.Wait() })
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// envoy is the gateway's side of one stream.
type envoy struct {
	t      *testing.T
	stream deltaStream
	close  func()
}

// deltaStream is one of ADS, or of a single type.
type deltaStream interface {
	Send(*discovery.DeltaDiscoveryRequest) error
	Recv() (*discovery.DeltaDiscoveryResponse, error)
}

func connect(t *testing.T, conn *grpc.ClientConn) *envoy {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return &envoy{t, stream, cancel}
}

func (e *envoy) send(r *discovery.DeltaDiscoveryRequest) {
	e.t.Helper()
	if err := e.stream.Send(r); err != nil {
		e.t.Fatal(err)
	}
}

// subscribe asks for endpoints, as the first request of a stream.
func (e *envoy) subscribe(names ...string) {
	e.t.Helper()
	e.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: edge.ID}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names})
}

// receive returns the address of the one endpoint that comes, and acknowledges it.
func (e *envoy) receive() string {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
	var a endpoint.ClusterLoadAssignment
	if err := r.GetResources()[0].GetResource().UnmarshalTo(&a); err != nil {
		e.t.Fatal(err)
	}
	address := a.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress()
	return address.GetPipe().GetPath() + address.GetSocketAddress().GetAddress()
}

// refused returns with which code the server ends the stream.
func (e *envoy) refused() codes.Code {
	e.t.Helper()
	_, err := e.stream.Recv()
	return status.Code(err)
}

func update(t *testing.T, s *Server, st platform.State, gateways ...Gateway) {
	t.Helper()
	if err := s.Update(st, nil, gateways); err != nil {
		t.Fatal(err)
	}
}

func hotState() platform.State {
	return platform.State{Functions: []platform.Function{video()}, Instances: []platform.Instance{ready(video(), "one", "10.0.0.2:80")}}
}

func coldVideo() platform.State { return platform.State{Functions: []platform.Function{video()}} }

func TestUpdatesReachTheGateway(t *testing.T) {
	s, conn := dial(t, nil)
	e := connect(t, conn)
	e.subscribe(video().Name) // before anything is known
	update(t, s, coldVideo(), edge)
	if got := e.receive(); got != edge.IngressSocket {
		t.Errorf("cold: %s", got)
	}
	update(t, s, coldVideo(), edge) // nothing new: the next response is of what follows
	update(t, s, hotState(), edge)
	if got := e.receive(); got != "10.0.0.2" {
		t.Errorf("hot: %s", got)
	}
	moved := edge
	moved.IngressSocket = "/run/other.sock"
	update(t, s, coldVideo(), moved)
	if got := e.receive(); got != moved.IngressSocket {
		t.Errorf("cold after the daemon moved: %s", got)
	}
}

func TestWrongStateChangesNothing(t *testing.T) {
	s, conn := dial(t, nil)
	update(t, s, coldVideo(), edge)
	wrong := hotState()
	wrong.Instances[0].Address = "nowhere"
	if err := s.Update(wrong, nil, []Gateway{edge, {ID: "other"}}); err == nil {
		t.Fatal("no error")
	}
	e := connect(t, conn)
	e.subscribe(video().Name)
	if got := e.receive(); got != edge.IngressSocket {
		t.Errorf("got %s", got)
	}
}

// The gateway's own row is what it gets; what cannot be used of it, and what the gateway
// refuses, is told.
func TestWeightsOfAGateway(t *testing.T) {
	s, conn := dial(t, nil)
	e := connect(t, conn)
	e.subscribe(video().Name)
	st := hotState()
	st.Instances = append(st.Instances, ready(video(), "two", "10.0.0.3:80"), ready(video(), "three", "10.0.0.4:80"))
	publish := func(row ...uint32) string {
		t.Helper()
		w := routing.Weights{video().Name: {Endpoints: addressesOf("10.0.0.2", "10.0.0.3", "10.0.0.4"), Rows: map[string]routing.Row{edge.ID: {Weights: row}}}}
		if err := s.Update(st, w, []Gateway{edge}); err != nil {
			t.Fatal(err)
		}
		r, err := e.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
		var a endpoint.ClusterLoadAssignment
		if err := r.GetResources()[0].GetResource().UnmarshalTo(&a); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range a.GetEndpoints() {
			for _, x := range l.GetLbEndpoints() {
				got = append(got, fmt.Sprintf("%d:%s=%d", l.GetPriority(), x.GetEndpoint().GetAddress().GetSocketAddress().GetAddress(), x.GetLoadBalancingWeight().GetValue()))
			}
		}
		return strings.Join(got, " ")
	}
	if got, want := publish(7, 0, 3), "0:10.0.0.2=7 0:10.0.0.4=3 1:10.0.0.3=0"; got != want || len(s.Problems()) > 0 {
		t.Errorf("got %s, want %s; problems %v", got, want, s.Problems())
	}
	if got, want := publish(0, 0, 0), "0:10.0.0.2=0 0:10.0.0.3=0 0:10.0.0.4=0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want := []routing.Problem{{Function: video().Name, Gateways: []string{edge.ID}, Message: "all weights of ready endpoints are 0; requests are spread evenly"}}
	if diff := cmp.Diff(want, s.Problems()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	update(t, s, coldVideo(), edge)
	r, err := e.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "no room"}})
	update(t, s, hotState(), edge)
	if _, err := e.stream.Recv(); err != nil { // the server has read what was sent before
		t.Fatal(err)
	}
	want = []routing.Problem{{Gateways: []string{edge.ID}, Message: "refused its ClusterLoadAssignment, and keeps what it has: no room"}}
	if diff := cmp.Diff(want, s.Problems()); diff != "" {
		t.Errorf("after a refusal (-want +got):\n%s", diff)
	}
}

// A daemon that registers anew finds its gateway as it was, or brings it back.
func TestUnlistedGateway(t *testing.T) {
	s, conn := dial(t, nil)
	update(t, s, coldVideo(), edge)
	e := connect(t, conn)
	e.subscribe(video().Name)
	e.receive()
	update(t, s, hotState()) // the node's daemon is away, its Envoy is not
	if got := e.receive(); got != "10.0.0.2" {
		t.Errorf("a connected gateway got %s", got)
	}
	e.close()
	for len(gateways(s)) > 0 { // until the server has seen the end of the stream
		update(t, s, hotState())
	}
	e = connect(t, conn)
	e.subscribe(video().Name)
	update(t, s, coldVideo(), edge)
	if got := e.receive(); got != edge.IngressSocket {
		t.Errorf("a gateway that is back got %s", got)
	}
}

func gateways(s *Server) map[string]Gateway {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gateways
}

func TestStrangersAreRefused(t *testing.T) {
	node := func(id string) *core.Node { return &core.Node{Id: id} }
	for name, c := range map[string]struct {
		requests []*discovery.DeltaDiscoveryRequest
		want     codes.Code
	}{
		"another node": {[]*discovery.DeltaDiscoveryRequest{{Node: node("cloud"), TypeUrl: resource.ClusterType}}, codes.PermissionDenied},
		"no node":      {[]*discovery.DeltaDiscoveryRequest{{TypeUrl: resource.ClusterType}}, codes.InvalidArgument},
		"a node that changes": {[]*discovery.DeltaDiscoveryRequest{
			{Node: node("edge"), TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"x"}}, {Node: node("cloud"), TypeUrl: resource.EndpointType},
		}, codes.PermissionDenied},
		"a node that vanishes": {[]*discovery.DeltaDiscoveryRequest{
			{Node: node("edge"), TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"x"}}, {Node: node(""), TypeUrl: resource.EndpointType},
		}, codes.PermissionDenied},
		"secrets": {[]*discovery.DeltaDiscoveryRequest{{Node: node("edge"), TypeUrl: resource.SecretType}}, codes.InvalidArgument},
	} {
		s, conn := dial(t, nil)
		update(t, s, coldVideo(), edge)
		e := connect(t, conn)
		for _, r := range c.requests {
			e.send(r)
		}
		if got := e.refused(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestOnlyDelta(t *testing.T) {
	_, conn := dial(t, nil)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("state of the world: %v", err)
	}
}

func TestLoadReporting(t *testing.T) {
	received := make(chan []signals.Load, 1)
	s, conn := dial(t, func(gateway string, loads []signals.Load) {
		if gateway != edge.ID {
			t.Errorf("gateway %s", gateway)
		}
		received <- loads
	})
	update(t, s, coldVideo(), edge)
	stream, err := loadstats.NewLoadReportingServiceClient(conn).StreamLoadStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send := func(r *loadstats.LoadStatsRequest) {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	send(&loadstats.LoadStatsRequest{Node: &core.Node{Id: edge.ID}})
	r, err := stream.Recv()
	if err != nil || !r.GetSendAllClusters() || r.GetLoadReportingInterval().AsDuration() != LoadInterval {
		t.Fatalf("response %v, error %v", r, err)
	}
	send(&loadstats.LoadStatsRequest{ClusterStats: []*endpoint.ClusterStats{report(video().Name, [2]uint64{2, 3}), report("default/unknown", [2]uint64{1, 1})}})
	if diff := cmp.Diff([]signals.Load{{Function: video().Name, InFlight: 2, Issued: 3}}, <-received); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	send(&loadstats.LoadStatsRequest{Node: &core.Node{Id: "cloud"}})
	if _, err := stream.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a node that changes: %v", err)
	}

	other, err := loadstats.NewLoadReportingServiceClient(conn).StreamLoadStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Send(&loadstats.LoadStatsRequest{Node: &core.Node{Id: "cloud"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Recv(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another node: %v", err)
	}
}
