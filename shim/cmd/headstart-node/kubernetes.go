package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/gatekey"
	"github.com/headstart-mesh/headstart/shim/identity"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/mesh"
	"github.com/headstart-mesh/headstart/shim/node"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/relay"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// issuedParty is who the control plane says, by a certificate that it issues.
func issuedParty(c config, log *slog.Logger) (party, error) {
	at, err := netip.ParseAddrPort(c.peerListen)
	if err != nil {
		return party{}, fmt.Errorf("--peer-listen: %w", err)
	}
	id := identity.New(identity.Config{Address: c.identity, ServerName: c.controlName, TokenFile: c.token,
		AuthorityFile: c.ca, RevokedDir: c.revoked, Addresses: []netip.Addr{at.Addr()}, Log: log})
	return party{name: c.nodeName, server: id.Server(), client: id.Client,
		controlPlane: id.Credentials(c.controlName), run: id.Run, admit: id.Admit}, nil
}

// openPods follows the pods that Kubernetes runs on the node, and stands between the
// control plane and the node's gateways.
func openPods(ctx context.Context, c config, b below) (*platform, error) {
	if err := makeOpen(c.gateway("")); err != nil {
		return nil, err
	}
	keys, err := gatekey.Open(c.state("gateway-keys.json"))
	if err != nil {
		return nil, err
	}
	tellKey := func() error { return keys.WriteFile(c.gateway("key"), c.gatewayUID) }
	if err := tellKey(); err != nil {
		return nil, err
	}
	pods, err := sandboxes.OpenKubelet(b.sandboxes, b.functions.Lookup)
	if err != nil {
		return nil, err
	}
	p := &platform{sandboxes: pods.Set, caller: pods.Caller,
		relay:   b.newRelay(relay.Config{WeightsAlone: c.weightsAlone, StateFile: c.state("endpoints.pb"), Keys: keys}),
		gateway: func(in *ingress.Ingress) http.Handler { return in.MeshGateway(keys) },
		filters: func(in *ingress.Ingress, h http.Handler) http.Handler { return in.MeshFilters(keys, h) }}
	p.join = func(parts node.Parts) node.Node { return node.NewCluster(parts, pods) }
	p.awaitJob = func(ctx context.Context, sandbox string) error {
		if !pods.SaysJob(sandbox) {
			return nil
		}
		return b.jobs.Await(ctx, sandbox)
	}
	tell := func() error { return errors.Join(tellKey(), p.relay.Rekey()) }
	p.serve = func(ctx context.Context, g *errgroup.Group) {
		if c.otlp != "" {
			serveOTLP(ctx, g, c, b.otlp)
		}
		g.Go(func() error { pods.Run(ctx); return nil })
		g.Go(func() error { keys.Run(ctx, tell, b.log); return nil })
	}
	p.close = func() error { pods.Close(); return nil }
	if c.meshCA == "" {
		return p, nil
	}
	workload, err := mesh.New(ctx, mesh.Config{Authority: c.meshCA, RootFile: c.meshRoot, TokenFile: c.meshToken,
		TrustDomain: c.meshTrustDomain, Cluster: c.meshCluster, Log: b.log})
	if err != nil {
		pods.Close()
		return nil, err
	}
	p.mesh = workload
	p.close = func() error { workload.Close(); pods.Close(); return nil }
	return p, nil
}

// makeOpen makes a directory that everybody may pass, and nobody but its owner list.
func makeOpen(dir string) error {
	err := os.MkdirAll(dir, 0o711)
	if err == nil {
		err = os.Chmod(dir, 0o711) // the mode given before has passed the umask
	}
	if err != nil {
		return fmt.Errorf("making the directory for the gateways' sockets: %w", err)
	}
	return nil
}

// serveOTLP takes the shims' spans on otlp.sock until ctx ends.
func serveOTLP(ctx context.Context, g *errgroup.Group, c config, with grpc.DialOption) {
	conn, err := grpc.NewClient(c.otlp, grpc.WithNoProxy(), with)
	if err != nil {
		g.Go(func() error { return fmt.Errorf("--otlp %q: %w", c.otlp, err) })
		return
	}
	shims := serve.NewGRPC()
	coltracepb.RegisterTraceServiceServer(shims, node.Spans{Collector: coltracepb.NewTraceServiceClient(conn)})
	take := serve.GRPC(ctx, shims)
	serve.Go(
		g, serve.Unix(c.socket(otlpSocket)), func(l net.Listener) error { return errors.Join(take(l), conn.Close()) },
	)
}
