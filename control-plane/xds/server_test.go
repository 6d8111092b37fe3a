package xds

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

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

// refused returns with which code the server ends the stream.
func (e *envoy) refused() codes.Code {
	e.t.Helper()
	_, err := e.stream.Recv()
	return status.Code(err)
}

func TestOnlyDelta(t *testing.T) {
	_, conn := dialMesh(t)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("state of the world: %v", err)
	}
}

// Settled waits for the nodes that are connected, until they have taken all that was published before:
// an instance that was withdrawn is stopped then.
func TestSettled(t *testing.T) {
	m, conn := dialMesh(t, "cloud")
	updateMesh(t, m, meshState())
	if err := m.Settled(t.Context()); err != nil {
		t.Errorf("with nobody connected: %v", err)
	}
	edge, cloud := follow(t, conn, "edge"), follow(t, conn, "cloud")
	edge.changes()
	cloud.changes()
	updateMesh(t, m, twoReady())
	edge.changes()
	r, err := cloud.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for late := time.Now().Add(10 * time.Second); ; { // what edge has said may be on its way
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := m.Settled(short)
		cancel()
		if err != nil && strings.Contains(err.Error(), "waiting for the nodes cloud to take what they are told") {
			break
		}
		if err == nil || time.Now().After(late) {
			t.Fatalf("with one behind: %v", err)
		}
	}
	settled := make(chan error, 1)
	go func() { settled <- m.Settled(t.Context()) }()
	cloud.send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "no room"},
	})
	if err := <-settled; err != nil { // what it refuses is a problem, and waited for no longer
		t.Error(err)
	}
	updateMesh(t, m, meshState())
	edge.changes()
	if _, err := cloud.stream.Recv(); err != nil {
		t.Fatal(err)
	}
	go func() { settled <- m.Settled(t.Context()) }()
	cloud.close()
	if err := <-settled; err != nil { // one that is gone is not waited for
		t.Error(err)
	}
}
