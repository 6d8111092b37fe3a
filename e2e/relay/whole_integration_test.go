//go:build integration

package relay

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/local"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	owngateway "github.com/headstart-mesh/headstart/shim/gateway"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/relay"
)

// whole is a node of the embedded platform: its gateway has everything from the relay.
type whole struct {
	*bed
	server    *xds.Server
	gateway   owngateway.Config
	confirmed chan int64
}

func newWhole(t *testing.T) *whole {
	t.Helper()
	w := &whole{
		bed:       &bed{t: t, dir: t.TempDir(), activity: &activity{}, address: "127.0.0.1:0"},
		confirmed: make(chan int64, 1),
	}
	w.gateway = owngateway.Config{Node: "edge", Port: uint32(porttest.Free(t)), RelaySocket: w.socket("gateway.sock"),
		IngressSocket: w.socket("ingress.sock"),
		HintSocket:    w.socket("hints.sock"), AdminSocket: w.socket("admin.sock")}
	w.url = fmt.Sprintf("http://127.0.0.1:%d/", w.gateway.Port)
	w.startControlPlane()
	return w
}

func (w *whole) startControlPlane() {
	w.t.Helper()
	name := func(f platform.Function) string { return f.Name }
	w.server = xds.New(
		xds.Config{Endpoints: name, Cluster: name, Verify: func(context.Context, string) error { return nil }},
		w.log("control plane"),
	)
	g := grpc.NewServer(xds.ServerOptions()...)
	w.server.Register(g)
	w.address, w.stopControlPlane = w.serve(g, "tcp", w.address)
}

func (w *whole) startDaemon() {
	w.t.Helper()
	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: patience, Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second}}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.relay = relay.New(relay.Config{Gateway: w.gateway, Node: "edge", ControlPlane: conn,
		StateFile: w.socket("gateway.pb"), Activity: w.activity, Refused: func(*nodeapi.GatewayRefusals) {},
		Confirmed: func(id int64) { w.confirmed <- id }, Metrics: relay.NewMetrics(prometheus.NewRegistry()), Log: w.log("daemon")})
	r := w.relay
	g := grpc.NewServer(relay.ServerOptions()...)
	r.Register(g)
	_, stop := w.serve(g, "unix", w.socket("gateway.sock"))
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	w.stopDaemon = sync.OnceFunc(func() { stop(); cancel(); wg.Wait(); conn.Close() })
	w.t.Cleanup(w.stopDaemon)
}

func (w *whole) startEnvoy() {
	w.t.Helper()
	b, err := w.gateway.Bootstrap()
	if err != nil {
		w.t.Fatal(err)
	}
	w.runEnvoy(b)
}

func (w *whole) update(st platform.State) {
	w.t.Helper()
	for i := range st.Functions {
		st.Functions[i].Hosts = []string{"video.example"}
	}
	if err := w.server.Update(st, nil); err != nil {
		w.t.Fatal(err)
	}
}

// deploy tells the daemon of the function, as its control plane does.
func (w *whole) deploy(st platform.State) {
	w.t.Helper()
	st.Functions[0].Hosts = []string{"video.example"}
	w.relay.SetFunctions([]*nodeapi.Function{local.Message(st.Functions[0])})
}

// settle waits until gateway and daemon have taken everything over.
func (w *whole) settle() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.server.Settled(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.relay.Confirm(1)
	select {
	case <-w.confirmed:
	case <-ctx.Done():
		w.t.Fatal("the gateway does not take what it is told")
	}
}

// A fresh gateway routes as was said last without the control plane, by a daemon that may have started
// then as well. It follows the control plane again when that is back. Without both it goes on.
func TestFreshWholeGatewayWithoutControlPlane(t *testing.T) {
	w := newWhole(t)
	w.listen("unix", w.socket("ingress.sock"), says("daemon"))
	one, two, three := w.listen("tcp", "127.0.0.1:0", says("one")), w.listen("tcp", "127.0.0.1:0", says("two")), w.listen("tcp", "127.0.0.1:0", says("three"))
	w.update(at(one.address))
	w.startDaemon()
	w.deploy(at())
	w.startEnvoy()
	w.comes("one")
	w.settle()
	w.stopControlPlane()
	w.stopEnvoy()
	w.startEnvoy()
	w.comes("one")
	w.stopDaemon()
	w.stopEnvoy()
	w.startDaemon()
	w.startEnvoy()
	w.comes("one")

	w.startControlPlane()
	w.update(at(two.address))
	w.comes("two")
	w.update(at(three.address))
	w.comes("three")
	w.update(at())
	w.comes("daemon")
	w.settle()

	w.stopControlPlane()
	w.stopDaemon()
	for range 20 {
		if got := w.get(); got != "daemon" {
			t.Fatalf("alone: %s", got)
		}
	}
	w.startControlPlane()
	w.update(at(one.address))
	w.startDaemon()
	w.comes("one")
}
