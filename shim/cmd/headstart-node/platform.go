package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/job"
	"github.com/headstart-mesh/headstart/shim/node"
	"github.com/headstart-mesh/headstart/shim/nodeapi/peertls"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/relay"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/uplink"
)

// The platforms that a node can be of.
const (
	platformLocal      = "local"
	platformKubernetes = "kubernetes"
)

// party is who the node is to control plane and peers.
type party struct {
	name   string
	server *tls.Config
	// client is the configuration for one connection to a peer's host.
	client func(host string) (*tls.Config, error)
	// controlPlane is for connections to the control plane.
	controlPlane credentials.TransportCredentials
	// run keeps it up to date until its context ends.
	run func(context.Context)
	// admit keeps out the requests of nodes that have been revoked.
	admit func(http.Handler) http.Handler
}

// peer is the configuration for one connection to a node's daemon.
func (p party) peer(node, host string) (*tls.Config, error) {
	conf, err := p.client(host)
	if err != nil {
		return nil, err
	}
	return peertls.Named(conf, node), nil
}

func (c config) party(log *slog.Logger) (party, error) {
	if c.platform == platformKubernetes {
		return issuedParty(c, log)
	}
	return localParty(c)
}

// platform is what runs the node's instances. local.go and kubernetes.go each make one.
type platform struct {
	sandboxes *sandboxes.Set
	// mesh is nil where there is none.
	mesh ingress.Mesh
	// relay stands between the control plane and the node's gateways.
	relay *relay.Relay
	// gateway serves what the node's gateways send.
	gateway func(*ingress.Ingress) http.Handler
	// filters serves what their filters tell and ask, of all that h serves.
	filters func(in *ingress.Ingress, h http.Handler) http.Handler
	// awaitJob waits for the control plane's word of a sandbox that says it is a job's.
	awaitJob func(ctx context.Context, sandbox string) error
	// caller is the function whose sandbox it is, as far as the control plane says so in time.
	caller func(ctx context.Context, sandbox string) string
	// join makes the node.
	join func(node.Parts) node.Node
	// serve adds what only this platform has to what the daemon does.
	serve func(context.Context, *errgroup.Group)
	close func() error
}

// below is what a platform stands on.
type below struct {
	node      string // its name
	otlp      grpc.DialOption
	functions *ingress.Functions
	uplink    *uplink.Uplink
	jobs      *job.Set
	sandboxes sandboxes.Config
	registry  prometheus.Registerer
	log       *slog.Logger
}

func (c config) open(ctx context.Context, b below) (*platform, error) {
	if c.platform == platformKubernetes {
		return openPods(ctx, c, b)
	}
	return openLocal(ctx, c, b)
}

// newRelay completes what the platform says of its relay.
func (b below) newRelay(r relay.Config) *relay.Relay {
	r.Node, r.ControlPlane, r.Activity = b.node, b.uplink.Followed(), b.uplink
	r.Refused, r.Confirmed = b.uplink.Refused, b.uplink.Confirmed
	r.Metrics, r.Log = relay.NewMetrics(b.registry), b.log
	return relay.New(r)
}

// serveRelay has the relay follow the control plane, and the node's gateways ask it.
func serveRelay(ctx context.Context, g *errgroup.Group, c config, r *relay.Relay) {
	gateways := serve.NewGRPC(relay.ServerOptions()...)
	r.Register(gateways)
	serve.Go(g, c.gatewaySocket("gateway.sock"), serve.GRPC(ctx, gateways))
	g.Go(func() error { r.Run(ctx); return nil })
}
