package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/coordinator"
	"github.com/headstart-mesh/headstart/control-plane/identity"
	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/lease"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
	"github.com/headstart-mesh/headstart/control-plane/xds"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/metrics"
	"github.com/headstart-mesh/headstart/shim/nodeapi/serve"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// authorityTimeout bounds one try of the first words with the API server.
	authorityTimeout = 30 * time.Second
	// authorityRetryMost is the longest until they are tried again. To end instead would
	// leave it to the kubelet's back-off, which grows to five minutes.
	authorityRetryMost = 2 * time.Second
)

// runKubernetes is the control plane of a cluster, from what it is told to what it tells.
func runKubernetes(ctx context.Context, c config) (err error) {
	log, err := c.logger()
	if err != nil {
		return err
	}
	registry := metrics.NewRegistry()
	allowed, err := c.allowedStores()
	if err != nil {
		return err
	}
	reachable, err := c.allowedDestinations(destinations.Sandbox)
	if err != nil {
		return err
	}
	clients, meshObjects, err := c.connect()
	if err != nil {
		return err
	}
	kept := identity.NewSecretStore(clients.Kubernetes, c.namespace)
	authority, err := openAuthority(ctx, kept, c.namespace, log)
	if err != nil {
		return err
	}
	key, err := authority.SigningKey()
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { authority.Follow(ctx, kept, kept, log); return nil })

	// Traces: everybody's spans come here, the control plane's own too.
	traces, err := collect(ctx, g, c.otlpForward, serve.TCP(c.otlpListen, serve.Parties), authority.ServerTLS(), log)
	if err != nil {
		return err
	}
	own, err := loopback(c.otlpListen)
	if err != nil {
		return fmt.Errorf("--otlp-listen: %w", err)
	}
	stopTracing, err := tracing.Start(ctx, tracing.ServiceControlPlane, nodeapi.Version, own)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, serve.Bounded(ctx, shutdownTimeout, stopTracing)) }()

	// The cluster -> platform -> nodes, and by them the gateways; the mesh's configuration.
	name, err := c.ownName()
	if err != nil {
		return err
	}
	turn := lease.New(clients.Kubernetes, c.namespace, name, log)
	registry.MustRegister(inCharge(turn))
	cp := coordinator.NewCluster(clients, coordinator.ClusterConfig{Namespace: c.namespace, InCharge: turn.Held, Namespaces: c.functionNamespaces,
		FunctionsPerNamespace: c.functionsPerNamespace, LabelNodes: c.labelNodes,
		Mesh: istio.NewWriter(meshObjects, istio.Config{RootNamespace: c.istioRoot, Revision: c.istioRevision}, log)},
		coordinator.Parts{Stores: allowed, Destinations: reachable, Traces: traces, Key: key, Metrics: registry, Log: log})

	registry.MustRegister(drifted(cp.Platform), withdrawn{cp.Platform})

	// A state that is not known yet is told to nobody: hot functions would look cold.
	g.Go(func() error { cp.Platform.Run(ctx); return nil })
	select {
	case <-cp.Platform.Recovered():
		cp.Publish()
	case <-ctx.Done():
		return g.Wait()
	}
	g.Go(func() error { cp.Run(ctx); return nil })
	g.Go(func() error { return turn.Run(ctx, cp.Lead) })
	g.Go(func() error { cp.Gather(ctx); return nil })
	g.Go(func() error { cp.Survey.Run(ctx); return nil })

	// The ways in.
	mutual := serve.NewGRPC(append(xds.ServerOptions(), grpc.Creds(authority.NodeCredentials()), grpc.WaitForHandlers(true))...)
	defer cp.Nodes.Wait()
	nodeapi.RegisterControlPlaneServer(mutual, cp.Nodes)
	cp.Gateways.Register(mutual)
	serve.Go(g, serve.TCP(c.listen, serve.Parties), serve.GRPC(ctx, mutual))
	newcomers := serve.NewGRPC(authority.IdentityOptions()...)
	nodeapi.RegisterIdentityServer(newcomers, authority.Server(identity.NewCluster(clients.Kubernetes, c.namespace), log))
	serve.Go(g, serve.TCP(c.identityListen, serve.Strangers), serve.GRPC(ctx, newcomers))
	serve.Go(g, serve.TCP(c.adminListen, serve.Own), serve.HTTP(ctx, admin.Handler(cp), shutdownTimeout, log))
	if c.metrics != "" {
		serve.Go(g, serve.TCP(c.metrics, serve.Strangers),
			serve.HTTP(ctx, serve.Metrics(registry), shutdownTimeout, log))
	}
	log.Info("control plane is up", "platform", c.platform, "listen", c.listen, "version", nodeapi.Version)
	return g.Wait()
}

// inCharge tells whose turn it is when asked.
func inCharge(turn *lease.Lease) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headstart_in_charge", Help: "1 while it is this control plane that scales to zero and writes the mesh's configuration."}, func() float64 {
		if turn.Held() {
			return 1
		}
		return 0
	})
}

// drifted tells how many nodes have lost what the installer has put there.
func drifted(p *kube.Platform) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "headstart_nodes_drifted", Help: "Nodes whose container runtime has lost the runtime headstart since it was installed."},
		func() float64 { return float64(p.Drifted()) })
}

// withdrawn tells how many replicas idle functions are without.
type withdrawn struct{ *kube.Platform }

var withdrawnReplicas = prometheus.NewDesc("headstart_withdrawn_replicas",
	"Replicas that a function is without because it is idle; 0 while it has any.", []string{"function"}, nil)

// Describe implements prometheus.Collector.
func (withdrawn) Describe(to chan<- *prometheus.Desc) { to <- withdrawnReplicas }

// Collect implements prometheus.Collector.
func (w withdrawn) Collect(to chan<- prometheus.Metric) {
	for function, replicas := range w.Withdrawn() {
		to <- prometheus.MustNewConstMetric(withdrawnReplicas, prometheus.GaugeValue, float64(replicas), function)
	}
}

// ownName is the pod's, if nobody says otherwise: a process that follows another in it goes on
// as that one.
func (c config) ownName() (string, error) {
	if c.name != "" {
		return c.name, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the control plane's own name: %w", err)
	}
	return name, nil
}

// openAuthority tries until it is there: an API server that is away comes back, and who
// mends what the log says need not restart anything.
func openAuthority(ctx context.Context, kept identity.SecretStore, namespace string, log *slog.Logger) (*identity.Authority, error) {
	wait := backoff.NewExponentialBackOff()
	wait.MaxInterval = authorityRetryMost
	return backoff.Retry(ctx, func() (*identity.Authority, error) {
		ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
		defer cancel()
		authority, err := identity.Open(ctx, kept, namespace)
		if err != nil {
			return nil, err
		}
		// Before it serves: which nodes are revoked. Without the right to read that, as before that right was one.
		if _, err := authority.Refresh(ctx, kept, kept); err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		return authority, nil
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(err error, again time.Duration) {
		log.Warn("the control plane cannot start yet", "error", err, "again", again)
	}))
}

// connect returns clients of the API server; it does not talk to it yet.
func (c config) connect() (clients kube.Clients, mesh istio.API, err error) {
	server, err := c.apiServer()
	if err != nil {
		return clients, nil, err
	}
	if clients, err = kube.Connect(server); err != nil {
		return clients, nil, err
	}
	mesh, err = istio.Connect(server)
	return clients, mesh, err
}

// apiServer is the cluster that the control plane runs in, or that --kubeconfig names.
func (c config) apiServer() (*rest.Config, error) {
	if c.kubeconfig != "" {
		server, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		return server, nil
	}
	server, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("not inside a cluster (set --kubeconfig): %w", err)
	}
	return server, nil
}

func (c config) allowedStores() (stores.Stores, error) {
	if c.stores == "" {
		return nil, nil
	}
	return stores.Load(c.stores)
}

// allowedDestinations are the operator's; standard is the origin of those that name none.
func (c config) allowedDestinations(standard destinations.Origin) (destinations.Destinations, error) {
	if c.destinations == "" {
		return nil, nil
	}
	return destinations.Load(c.destinations, standard)
}

// loopback is how this process reaches its own listener on address.
func loopback(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}
