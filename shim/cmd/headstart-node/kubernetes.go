package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/shim/identity"
	"github.com/headstart-mesh/headstart/shim/mesh"
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
	id := identity.New(identity.Config{Address: c.identity, ServerName: c.controlName, TokenFile: c.token, AuthorityFile: c.ca,
		Addresses: []netip.Addr{at.Addr()}, Log: log})
	return party{name: c.nodeName, server: id.Server(), client: id.Client, controlPlane: id.Credentials(c.controlName), run: id.Run}, nil
}

// openPods follows the pods that Kubernetes runs on the node, and stands between the
// control plane and the node's gateways.
func openPods(ctx context.Context, c config, n *node, name string, registry prometheus.Registerer, log *slog.Logger) (*platform, error) {
	if err := makeOpen(c.gateway("")); err != nil {
		return nil, err
	}
	filter, err := c.installRouteFilter()
	if err != nil {
		log.Error("the node's gateways pick no endpoint per request: weights alone say where requests go", "error", err)
	}
	n.kubelet, err = sandboxes.OpenKubelet(n.sandboxes(c, c.shimsOTLP(), log), n.functions.Lookup)
	if err != nil {
		return nil, err
	}
	n.relay = relay.New(relay.Config{RouteFilter: filter, Node: name, ControlPlane: n.uplink.Followed(), StateFile: c.state("endpoints.pb"), Activity: n.uplink, Refused: n.uplink.Refused,
		Metrics: relay.NewMetrics(registry), Log: log})
	p := &platform{sandboxes: n.kubelet.Set}
	p.serve = func(ctx context.Context, g *errgroup.Group) {
		serveRelay(ctx, g, c, n.relay)
		if c.otlp != "" {
			serveOTLP(ctx, g, c)
		}
		g.Go(func() error { n.kubelet.Run(ctx); return nil })
	}
	p.close = func() error { n.kubelet.Close(); return nil }
	if c.meshCA == "" {
		return p, nil
	}
	workload, err := mesh.New(ctx, mesh.Config{Authority: c.meshCA, RootFile: c.meshRoot, TokenFile: c.meshToken,
		TrustDomain: c.meshTrustDomain, Cluster: c.meshCluster, Log: log})
	if err != nil {
		n.kubelet.Close()
		return nil, err
	}
	p.mesh = workload
	p.close = func() error { workload.Close(); n.kubelet.Close(); return nil }
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

// gateway is the path of something for the gateways, which have one directory for it.
func (c config) gateway(name string) string {
	if c.platform == platformLocal {
		return c.socket(name)
	}
	return filepath.Join(c.runDir, "gateway", name)
}

func (c config) gatewaySocket(name string) serve.Listen {
	return serve.UnixFor(c.gateway(name), c.gatewayUID)
}
