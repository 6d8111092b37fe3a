//go:build integration

package relay

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/signals"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/relay"
)

// whole is a node of the embedded platform: its gateway has everything from the control
// plane.
type whole struct {
	*bed
	server         *xds.Server
	port           int
	files, gateway pki.Files
}

func newWhole(t *testing.T) *whole {
	t.Helper()
	w := &whole{bed: &bed{t: t, dir: t.TempDir(), activity: &activity{}, address: "127.0.0.1:0"}, port: int(porttest.Free(t))}
	w.url = fmt.Sprintf("http://127.0.0.1:%d/", w.port)
	authority, err := pki.New(filepath.Join(w.dir, "pki"))
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]*pki.Files{"controlplane": &w.files, "edge": &w.gateway} {
		if *files, err = authority.Issue(name, netip.MustParseAddr("127.0.0.1")); err != nil {
			t.Fatal(err)
		}
	}
	w.startControlPlane()
	return w
}

func (w *whole) startControlPlane() {
	w.t.Helper()
	server, _, err := peertls.Load(w.files.Cert, w.files.Key, w.files.CA)
	if err != nil {
		w.t.Fatal(err)
	}
	w.server = xds.New(xds.Config{ListenPort: uint32(w.port), Verify: func(ctx context.Context, _ string) error { _, err := peertls.Peer(ctx); return err },
		OnLoad: func(string, []signals.Load) {}}, w.log("control plane"))
	g := grpc.NewServer(append(xds.ServerOptions(), grpc.Creds(credentials.NewTLS(server)))...)
	w.server.Register(g)
	w.address, w.stopControlPlane = w.serve(g, "tcp", w.address)
}

func (w *whole) startDaemon() {
	w.t.Helper()
	_, client, err := peertls.Load(w.gateway.Cert, w.gateway.Key, w.gateway.CA)
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := grpc.NewClient(w.address, grpc.WithTransportCredentials(credentials.NewTLS(peertls.ClientFor(client, "controlplane"))),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: patience, Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, MaxDelay: time.Second}}))
	if err != nil {
		w.t.Fatal(err)
	}
	r := relay.New(relay.Config{Whole: true, Node: "edge", ControlPlane: conn, StateFile: w.socket("gateway.pb"), Activity: w.activity, Refused: func(*nodeapi.GatewayRefusals) {},
		Metrics: relay.NewMetrics(prometheus.NewRegistry()), Log: w.log("daemon")})
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
	b, err := xds.Bootstrap(xds.BootstrapConfig{NodeID: "edge", Cluster: "gateways", ControlPlaneAddress: w.address, ServerName: "controlplane",
		CertFile: w.gateway.Cert, KeyFile: w.gateway.Key, CAFile: w.gateway.CA, AdminSocket: w.socket("admin.sock"), RelaySocket: w.socket("gateway.sock")})
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
	gateways := []xds.Gateway{{ID: "edge", IngressSocket: w.socket("ingress.sock"), HintSocket: w.socket("hints.sock")}}
	if err := w.server.Update(st, nil, gateways); err != nil {
		w.t.Fatal(err)
	}
}

// settle waits until gateway and daemon have taken everything over.
func (w *whole) settle() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := w.server.Settled(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// Without the control plane a fresh gateway routes as it was told last, by a daemon that may
// have started then as well. It follows the control plane again when that is back.
func TestFreshWholeGatewayWithoutControlPlane(t *testing.T) {
	w := newWhole(t)
	w.listen("unix", w.socket("ingress.sock"), says("daemon"))
	one, two, three := w.listen("tcp", "127.0.0.1:0", says("one")), w.listen("tcp", "127.0.0.1:0", says("two")), w.listen("tcp", "127.0.0.1:0", says("three"))
	w.update(at(one.address))
	w.startDaemon()
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

	// A gateway that has met the control plane needs nobody else to go on.
	w.stopControlPlane()
	w.stopDaemon()
	for range 20 {
		if got := w.get(); got != "daemon" {
			t.Fatalf("alone: %s", got)
		}
	}
	w.startControlPlane()
	w.update(at(one.address))
	w.comes("one")
}
