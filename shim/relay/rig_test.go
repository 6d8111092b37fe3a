package relay

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	extension "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	deltastream "github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long the machine may take for what takes it milliseconds.
const patience = 30 * time.Second

// controlPlane is the other end of the relay's streams, spoken for by the test.
type controlPlane struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	extension.UnimplementedExtensionConfigDiscoveryServiceServer
	streams, expectations chan *upstream
	readers               sync.WaitGroup
}

// upstream is one stream that the relay has opened.
type upstream struct {
	t        *testing.T
	typeURL  string // of what send sends
	requests chan *discovery.DeltaDiscoveryRequest
	stream   deltastream.DeltaStream
	end      chan error
	nonce    int
}

func (c *controlPlane) DeltaAggregatedResources(s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	return c.serve(s, resource.EndpointType, c.streams)
}

func (c *controlPlane) DeltaExtensionConfigs(s extension.ExtensionConfigDiscoveryService_DeltaExtensionConfigsServer) error {
	return c.serve(s, resource.ExtensionConfigType, c.expectations)
}

func (c *controlPlane) serve(s deltastream.DeltaStream, typeURL string, streams chan<- *upstream) error {
	u := &upstream{typeURL: typeURL, requests: make(chan *discovery.DeltaDiscoveryRequest, 16), stream: s, end: make(chan error, 1)}
	c.readers.Go(func() {
		defer close(u.requests)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			u.requests <- r
		}
	})
	streams <- u
	select {
	case err := <-u.end:
		return err
	case <-s.Context().Done():
		return nil
	}
}

// accept waits for the relay's next stream.
func (c *controlPlane) accept(t *testing.T) *upstream {
	t.Helper()
	return next(t, c.streams)
}

func next(t *testing.T, streams <-chan *upstream) *upstream {
	t.Helper()
	select {
	case u := <-streams:
		u.t = t
		return u
	case <-time.After(patience):
		t.Fatal("the relay opens no stream")
		return nil
	}
}

func (u *upstream) recv() *discovery.DeltaDiscoveryRequest {
	u.t.Helper()
	select {
	case r, ok := <-u.requests:
		if !ok {
			u.t.Fatal("the relay has ended the stream")
		}
		return r
	case <-time.After(patience):
		u.t.Fatal("the relay says nothing")
		return nil
	}
}

// send sends assignments and removed names, and returns the relay's word on them.
func (u *upstream) send(removed []string, added ...*discovery.Resource) *discovery.DeltaDiscoveryRequest {
	u.t.Helper()
	u.nonce++
	nonce := strconv.Itoa(u.nonce)
	if err := u.stream.Send(&discovery.DeltaDiscoveryResponse{TypeUrl: u.typeURL, Nonce: nonce, Resources: added, RemovedResources: removed}); err != nil {
		u.t.Fatal(err)
	}
	r := u.recv()
	if r.GetResponseNonce() != nonce || r.GetTypeUrl() != u.typeURL {
		u.t.Fatalf("the relay's word is on %q of %q", r.GetResponseNonce(), r.GetTypeUrl())
	}
	return r
}

// accepted is send of what the relay must take.
func (u *upstream) accepted(removed []string, added ...*discovery.Resource) {
	u.t.Helper()
	if r := u.send(removed, added...); r.GetErrorDetail() != nil {
		u.t.Fatalf("refused: %s", r.GetErrorDetail().GetMessage())
	}
}

// assigned is the assignment name with one address.
func assigned(t *testing.T, name, version, address string) *discovery.Resource {
	t.Helper()
	a, err := anypb.New(&endpoint.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpoint.LocalityLbEndpoints{{LbEndpoints: []*endpoint.LbEndpoint{{
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: &core.Address{Address: &core.Address_SocketAddress{
			SocketAddress: &core.SocketAddress{Address: address, PortSpecifier: &core.SocketAddress_PortValue{PortValue: 80}}}}}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &discovery.Resource{Name: name, Version: version, Resource: a}
}

// activities records what an Activity hears.
type activities struct {
	mu   sync.Mutex
	said []string
}

func (a *activities) Seen(function string, active bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.said = append(a.said, function+" "+strconv.FormatBool(active))
}

func (a *activities) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	said := a.said
	a.said = nil
	return said
}

// rig is a relay between a control plane and Envoys, all of which the test speaks for.
type rig struct {
	t            *testing.T
	relay        *Relay
	controlPlane *controlPlane
	gateway      *grpc.ClientConn
	activities   *activities
	stop         func() // ends Run
}

func newRig(t *testing.T, stateFile string) *rig {
	t.Helper()
	return rigOf(t, Config{StateFile: stateFile})
}

// rigOf is of a relay with this configuration, as far as it says something.
func rigOf(t *testing.T, c Config) *rig {
	t.Helper()
	r := &rig{t: t, controlPlane: &controlPlane{streams: make(chan *upstream, 16), expectations: make(chan *upstream, 16)}, activities: &activities{}}
	t.Cleanup(r.controlPlane.readers.Wait)
	conn := connect(t, func(g *grpc.Server) {
		discovery.RegisterAggregatedDiscoveryServiceServer(g, r.controlPlane)
		extension.RegisterExtensionConfigDiscoveryServiceServer(g, r.controlPlane)
	}, grpc.WaitForHandlers(true))
	c.ControlPlane, c.Activity = conn, r.activities
	r.relay = relayOf(t, c)
	r.gateway = connect(t, r.relay.Register, ServerOptions()...)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.relay.Run(ctx) })
	r.stop = func() { cancel(); wg.Wait() }
	t.Cleanup(r.stop)
	return r
}

// deltaStream is an Envoy's side of EDS or ADS.
type deltaStream interface {
	Send(*discovery.DeltaDiscoveryRequest) error
	Recv() (*discovery.DeltaDiscoveryResponse, error)
}

// envoy is one stream of a gateway.
type envoy struct {
	t      *testing.T
	stream deltaStream
}

// asGateway has a gateway's key.
func (r *rig) asGateway() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, filterapi.HeaderKey, "gateways")
}

func (r *rig) eds() *envoy {
	r.t.Helper()
	s, err := endpointservice.NewEndpointDiscoveryServiceClient(r.gateway).DeltaEndpoints(r.asGateway())
	if err != nil {
		r.t.Fatal(err)
	}
	return &envoy{r.t, s}
}

func (r *rig) ads() *envoy {
	r.t.Helper()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(r.gateway).DeltaAggregatedResources(r.asGateway())
	if err != nil {
		r.t.Fatal(err)
	}
	return &envoy{r.t, s}
}

func (e *envoy) send(r *discovery.DeltaDiscoveryRequest) {
	e.t.Helper()
	if err := e.stream.Send(r); err != nil {
		e.t.Fatal(err)
	}
}

func (e *envoy) subscribe(names ...string) *envoy {
	e.t.Helper()
	e.send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "router~1"}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names})
	return e
}

// receive returns what comes, as "name address" or "-name", and acknowledges it.
func (e *envoy) receive() (got []string) {
	e.t.Helper()
	r, err := e.stream.Recv()
	if err != nil {
		e.t.Fatal(err)
	}
	e.send(&discovery.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResponseNonce: r.GetNonce()})
	for _, res := range r.GetResources() {
		var a endpoint.ClusterLoadAssignment
		if err := res.GetResource().UnmarshalTo(&a); err != nil {
			e.t.Fatal(err)
		}
		got = append(got, res.GetName()+" "+a.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetAddress())
	}
	for _, name := range r.GetRemovedResources() {
		got = append(got, "-"+name)
	}
	slices.Sort(got)
	return got
}

// want fails unless exactly this comes next.
func (e *envoy) want(what ...string) {
	e.t.Helper()
	if diff := cmp.Diff(what, e.receive()); diff != "" {
		e.t.Errorf("the gateway hears (-want +got):\n%s", diff)
	}
}

// refused returns how the relay ends the stream.
func (e *envoy) refused() codes.Code {
	e.t.Helper()
	_, err := e.stream.Recv()
	return status.Code(err)
}

func newRelay(t *testing.T, conn grpc.ClientConnInterface, stateFile string, a Activity) *Relay {
	t.Helper()
	return relayOf(t, Config{ControlPlane: conn, StateFile: stateFile, Activity: a})
}

func relayOf(t *testing.T, c Config) *Relay {
	t.Helper()
	if c.Refused == nil {
		c.Refused = func(*nodeapi.GatewayRefusals) {}
	}
	c.Node, c.Metrics, c.Log = "edge", NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(t.Output(), nil))
	return New(c)
}

// connect serves what register adds, and connects to it.
func connect(t *testing.T, register func(*grpc.Server), options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	g := grpc.NewServer(options...)
	register(g)
	l := bufconn.Listen(1 << 20)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); wg.Wait() })
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.Dial() }),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: patience, Backoff: backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
