package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// connect serves c and returns a connection of the node called edge, mutual TLS
// included, and a context for its streams.
func connect(t *testing.T, c *Local) (*grpc.ClientConn, context.Context) {
	t.Helper()
	authority, err := pki.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	load := func(name string) (server, client credentials.TransportCredentials) {
		f, err := authority.Issue(name)
		if err != nil {
			t.Fatal(err)
		}
		s, cl, err := peertls.Load(f.Cert, f.Key, f.CA)
		if err != nil {
			t.Fatal(err)
		}
		return credentials.NewTLS(s), credentials.NewTLS(peertls.ClientFor(cl, "control-plane"))
	}
	serverCreds, _ := load("control-plane")
	_, clientCreds := load("edge")
	g := grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(serverCreds), grpc.WaitForHandlers(true))...)
	nodeapi.RegisterControlPlaneServer(g, c.Nodes)
	c.Gateways.Register(g)
	l := bufconn.Listen(1 << 16)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	t.Cleanup(func() { g.Stop(); wg.Wait(); c.Nodes.Wait() })
	conn, err := grpc.NewClient("passthrough:control-plane", grpc.WithTransportCredentials(clientCreds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return conn, ctx
}

// join opens the node's stream and waits until it is told the functions.
func join(ctx context.Context, t *testing.T, conn *grpc.ClientConn) nodeapi.ControlPlane_ConnectClient {
	t.Helper()
	stream, err := nodeapi.NewControlPlaneClient(conn).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Register{Register: &nodeapi.Register{
		Version: "v1", PeerAddress: "10.201.0.11:9461", GatewayAddress: "10.201.0.11:8080"}}}); err != nil {
		t.Fatal(err)
	}
	next(t, stream)
	return stream
}

func next(t *testing.T, stream nodeapi.ControlPlane_ConnectClient) *nodeapi.ControlMessage {
	t.Helper()
	m, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// relay is the node's. It acknowledges endpoints after a look at them, until its stream ends.
func relay(ctx context.Context, t *testing.T, conn *grpc.ClientConn, look func(*discovery.DeltaDiscoveryResponse)) {
	t.Helper()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: "edge"}, TypeUrl: resource.EndpointType, ResourceNamesSubscribe: []string{"*"},
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			look(r)
			if stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}) != nil {
				return
			}
		}
	}()
}

// When apply returns, node and gateway know the function: its first request needs no
// second attempt.
func TestApplyReturnsWhenTheFunctionCanBeCalled(t *testing.T) {
	c := assemble(t, t.TempDir())
	conn, ctx := connect(t, c)
	c.Publish() // the relay is known once it has its first answer
	known := make(chan struct{})
	first := sync.OnceFunc(func() { close(known) })
	var applied, told atomic.Bool
	relay(ctx, t, conn, func(r *discovery.DeltaDiscoveryResponse) {
		for _, res := range r.GetResources() {
			told.Store(told.Load() || res.GetName() == "default/fire")
		}
		first()
	})
	<-known
	node := join(ctx, t, conn)
	functions := make(chan *nodeapi.Functions, 1)
	confirmed := make(chan struct{})
	go func() {
		defer close(confirmed)
		functions <- next(t, node).GetFunctions()
		id := next(t, node).GetConfirm().GetId()
		if applied.Load() || !told.Load() {
			t.Error("apply has returned, or the relay was not told, before the gateway is asked for")
		}
		if err := node.Send(&nodeapi.NodeMessage{
			Kind: &nodeapi.NodeMessage_Confirmed{Confirmed: &nodeapi.Confirmed{Id: id}},
		}); err != nil {
			t.Error(err)
		}
	}()
	got, err := c.Apply(strings.NewReader(fireManifest))
	if err != nil {
		t.Fatal(err)
	}
	applied.Store(true)
	<-confirmed
	if d := cmp.Diff([]admin.Applied{{Function: "default/fire", Change: platform.Created}}, got); d != "" {
		t.Error(d)
	}
	m := <-functions
	if f := m.GetFunctions(); len(f) != 1 || f[0].GetName() != "default/fire" || f[0].GetStore() != "videos" || !f[0].GetHasInput() {
		t.Errorf("the node was told %v", f)
	}
	wantStores := []*nodeapi.Store{{
		Kind: "s3", Name: "videos", Endpoint: "http://10.0.0.9:9000", Region: "eu-1", PathStyle: true,
		Buckets: []string{"videos"}, Secret: "videos",
	}}
	if d := cmp.Diff(wantStores, m.GetStores(), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	const full = "its disk has less free space"
	if err := node.Send(&nodeapi.NodeMessage{Kind: &nodeapi.NodeMessage_Keeps{Keeps: &nodeapi.Keeps{
		Bytes: 1, Limit: 2, Volumes: []*nodeapi.KeptVolume{{}}, Problems: []string{full}}}}); err != nil {
		t.Fatal(err)
	}
	if err := node.Send(&nodeapi.NodeMessage{
		Kind: &nodeapi.NodeMessage_Activate{Activate: &nodeapi.Activate{Request: "1", Function: "default/none"}},
	}); err != nil {
		t.Fatal(err)
	}
	if m := next(t, node); m.GetRefused() == nil { // then what was said before it has been heard, too
		t.Errorf("got %v", m)
	}
	wantNode := []admin.Node{{Name: "edge", Version: "v1", Gateway: "http://10.201.0.11:8080",
		Problems: []admin.NodeProblem{{Message: full, Fix: "see docs/operations/troubleshooting.md#a-node-cannot-keep-what-it-fetches"}},
		Cache:    &admin.NodeCache{Bytes: 1, Limit: 2, Volumes: 1, Problems: []string{full}}}}
	if d := cmp.Diff(wantNode, c.Status().Nodes); d != "" {
		t.Error(d)
	}
}

// A node is told of a deletion at once, also while an instance answers its last requests.
func TestNodesTakeNoRequestsOfADeletedFunction(t *testing.T) {
	c := assemble(t, t.TempDir())
	conn, ctx := connect(t, c)
	if _, err := c.Apply(strings.NewReader(fireManifest)); err != nil {
		t.Fatal(err)
	}
	node := join(ctx, t, conn)
	if err := node.Send(&nodeapi.NodeMessage{
		Kind: &nodeapi.NodeMessage_Activate{Activate: &nodeapi.Activate{Request: "1", Function: "default/fire"}},
	}); err != nil {
		t.Fatal(err)
	}
	if start, bound := next(t, node).GetStart(), next(t, node).GetBound(); start.GetId() == "" || bound.GetInstance() != start.GetId() {
		t.Errorf("start %v, bound %v", start, bound)
	}
	if err := c.Delete("default/fire"); err != nil {
		t.Fatal(err)
	}
	m := next(t, node)
	for m.GetConfirm() != nil || m.GetWithdraw() != nil { // the instance is withdrawn
		m = next(t, node)
	}
	if m.GetFunctions() == nil || len(m.GetFunctions().GetFunctions()) != 0 {
		t.Errorf("the node was told %v", m)
	}
	if f := c.Status().Functions; len(f) != 1 || !f[0].Deleting || len(f[0].Instances) != 1 {
		t.Errorf("functions are %+v", f)
	}
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	c.Platform.Run(stopped) // nothing drains any more
}

// After a restart, gateways keep what they have until the nodes have told what runs.
func TestNothingIsPublishedBeforeTheNodesAreBack(t *testing.T) {
	dir := t.TempDir()
	before := assemble(t, dir)
	if _, err := before.Apply(strings.NewReader(fireManifest)); err != nil {
		t.Fatal(err)
	}
	before.Joined("edge", &nodeapi.Register{})

	c := assemble(t, dir)
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := c.Settled(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("settled: %v", err)
	}
	c.Joined("edge", &nodeapi.Register{})
	if err := c.Settled(t.Context()); err != nil {
		t.Error(err)
	}
}

// Who can consume a function's stream is told to when it is deployed, and who joins later,
// after the functions; and is told when there is nothing to consume any more.
func TestNodesAreToldOfTriggers(t *testing.T) {
	c := assemble(t, t.TempDir())
	c.stores = append(c.stores, stores.Store{
		Name: "queues", Kind: stores.KindRedis, Endpoint: "10.0.0.9:6379", Buckets: []string{"jobs"},
	})
	conn, ctx := connect(t, c)
	publishing, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(publishing) })
	defer wg.Wait()
	defer stop()
	manifest := strings.Replace(
		fireManifest, "  annotations:\n",
		"  annotations:\n    headstart.dev/trigger: redis://jobs/frames\n    headstart.dev/trigger-store: queues\n", 1,
	)
	if _, err := c.Apply(strings.NewReader(manifest)); err != nil {
		t.Fatal(err)
	}
	stream, err := nodeapi.NewControlPlaneClient(conn).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&nodeapi.NodeMessage{
		Kind: &nodeapi.NodeMessage_Register{Register: &nodeapi.Register{Version: "v1", Triggers: true}},
	}); err != nil {
		t.Fatal(err)
	}
	if f := next(t, stream).GetFunctions().GetFunctions(); len(f) != 1 {
		t.Errorf("functions are %v", f)
	}
	want := &nodeapi.Triggers{
		Triggers: []*nodeapi.Trigger{{
			Function: "default/fire", Store: "queues", Stream: "redis://jobs/frames", Tries: 5,
			Input: "s3://{header.x-bucket}/{header.x-key}",
		}},
	}
	if d := cmp.Diff(want, next(t, stream).GetTriggers(), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	if err := c.Delete("default/fire"); err != nil {
		t.Fatal(err)
	}
	if m := next(t, stream); m.GetFunctions() == nil {
		t.Errorf("the node was told %v", m)
	}
	if m := next(t, stream); m.GetTriggers() == nil || len(m.GetTriggers().GetTriggers()) != 0 {
		t.Errorf("the node was told %v", m)
	}
}

// A node is told of the destinations and of its instances' connections, and deals with the control plane over unused ones.
func TestNodesAreToldOfConnections(t *testing.T) {
	parts := Parts{Destinations: destinations.Destinations{{Name: "orders", Origin: destinations.Node, Unused: 5}},
		Traces: trace.NewStore(), Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)}
	c, err := NewLocal(LocalConfig{StateDir: t.TempDir(), RunDir: t.TempDir()}, parts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.budget.Run(ctx) })
	defer running.Wait()
	defer cancel()
	conn, streams := connect(t, c)
	stream, err := nodeapi.NewControlPlaneClient(conn).Connect(streams)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*nodeapi.NodeMessage{
		{Kind: &nodeapi.NodeMessage_Register{Register: &nodeapi.Register{Version: "v1", PeerAddress: "10.201.0.11:9461", Parts: true}}},
		{Kind: &nodeapi.NodeMessage_Unused{Unused: &nodeapi.Unused{Id: 7, Destinations: []*nodeapi.UnusedConnections{{Destination: "orders", Held: 2, Wanted: 4}}}}},
	} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	if ds := next(t, stream).GetFunctionChanges().GetDestinations(); len(ds) != 1 || ds[0].GetName() != "orders" {
		t.Errorf("told %v", ds)
	}
	a := next(t, stream).GetAllowances()
	if a.GetAnswers() != 7 || !a.GetKeep() || len(a.GetDestinations()) != 1 || a.GetDestinations()[0].GetUnused() != 2 {
		t.Errorf("told %v", a)
	}
}
