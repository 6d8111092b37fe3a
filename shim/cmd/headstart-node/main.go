// headstart-node is the daemon of one node: it parks requests for cold functions,
// fetches their inputs, runs their sandboxes and delivers the requests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/headstart-mesh/headstart/shim/mesh"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// gcPercent is in place of Go's 100. What lives on the heap of an idle daemon is some 5 MB,
// most of it the descriptions of protocols; letting the garbage grow to half of that, and
// not to all, saves a megabyte or two on each node and costs next to no time. GOGC of the
// environment goes before it.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := command(run).ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "headstart-node:", err)
		os.Exit(1)
	}
}

// command is the command line; do gets what the flags say, once it makes sense.
func command(do func(context.Context, config) error) *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use:   "headstart-node",
		Short: "The daemon of one node of Headstart",
		Long: `headstart-node parks requests for cold functions, fetches their inputs while
their sandboxes start, and delivers the requests when both are there.

It registers with each control plane over one stream (mutual TLS; the node's name is
the common name of its certificate) and serves, in --run-dir, unix sockets of mode 0600:
  ingress.sock  requests from this node's Envoy
  hints.sock    hints from the gateways' filters, and their questions what to expect
  node.sock     questions of the containerd shims (HEADSTART_NODE_SOCKET)
  descriptors.sock
                open files for sandboxes, beside node.sock
  endpoints.sock
                listeners on the loopbacks of sandboxes, from their shims
  gateway.sock  the configuration of this node's Envoys (xDS), and their access logs

With --platform local it starts the sandboxes itself, by containerd, and writes envoy.json,
which the node's own Envoy is started with. With --platform kubernetes the kubelet starts the
pods, and the control plane issues the certificate of the daemon. The sockets for Envoy are in
gateway/ below --run-dir then, and one is added:
  otlp.sock     spans of the shims, with --otlp`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       nodeapi.Version,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, flag := range foreign[c.platform] {
				if cmd.Flags().Changed(flag) {
					return fmt.Errorf("--%s has no meaning with --platform %s", flag, c.platform)
				}
			}
			c := c.withPodIP()
			if err := c.check(); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return do(ctx, c)
		},
	}
	c.bind(cmd.Flags())
	return cmd
}

// bind defines the flags.
func (c *config) bind(f *pflag.FlagSet) {
	f.StringVar(&c.platform, "platform", platformLocal, "what runs the instances: local (this daemon) or kubernetes")
	f.StringVar(
		&c.stateDir, "state-dir", "/var/lib/headstart",
		"directory for buffered inputs, instances and logs; it survives restarts",
	)
	f.StringVar(&c.runDir, "run-dir", "/run/headstart", "directory for the daemon's unix sockets")
	f.StringVar(&c.secretsDir, "secrets-dir", "/etc/headstart/secrets", "directory of the secret files of stores and destinations, one per name")
	f.StringVar(&c.stores, "stores", "",
		"the operator's list of stores (YAML), which counts at each change; empty: the control plane's list counts")
	f.StringVar(&c.destinations, "destinations", "",
		"the operator's list of destinations (YAML), which counts at each change; empty: the control plane's list counts")
	f.StringVar(&c.controlPlane, "control-plane", "", "host:port of the control planes, several with commas between; each address of a host is one")
	f.StringVar(
		&c.controlPlaneAny, "control-plane-any", "",
		"host:port that leads to any control plane, used while none of --control-plane can be reached; empty for none",
	)
	f.StringVar(&c.controlName, "control-plane-name", "headstart-controlplane", "name in the control plane's certificate")
	f.StringVar(&c.cert, "cert", "", "this node's certificate (PEM); its common name is the node's name")
	f.StringVar(&c.key, "key", "", "private key of --cert (PEM)")
	f.StringVar(&c.ca, "ca", "", "certificate authority of control plane and nodes (PEM)")
	f.StringVar(&c.containerd, "containerd", "/run/containerd/containerd.sock", "containerd's socket")
	f.StringVar(&c.cniPlugins, "cni-plugins", "/usr/lib/cni", "directory of the CNI plugins bridge and host-local")
	f.StringVar(&c.bridge, "bridge", "headstart0", "bridge that sandboxes are attached to; created if absent")
	f.StringVar(&c.podSubnet, "pod-subnet", "", "range of the sandboxes' addresses, for example 10.201.1.0/24")
	f.Uint32Var(&c.gatewayPort, "gateway-port", 8080,
		"port of the node's gateway, an Envoy that envoy.json in --run-dir starts")
	f.StringVar(&c.filters, "filters", "", "the .wasm file of the gateway's filters; empty: a gateway without them")
	f.Float64Var(&c.traceSampling, "trace-sampling", 100, "percentage of requests that start a trace at the gateway")
	f.BoolVar(&c.weightsAlone, "weights-alone", false, "weights alone decide where requests go: the node's gateways pick no instance per request")
	f.StringVar(&c.peerListen, "peer-listen", "", "ip:port where other nodes hand over requests (mutual TLS); kubernetes: :port is that of --pod-ip")
	f.StringVar(&c.metricsListen, "metrics-listen", "127.0.0.1:9464", "ip:port of /metrics, empty for none")
	f.Int64Var(&c.inputs.Disk, "buffer-limit", 8<<30, "bytes of inputs that may be on disk at a time")
	f.Int64Var(
		&c.inputs.Memory, "buffer-memory", 0,
		"bytes of inputs that may be in memory at a time, before the disk is used; --run-dir has to be on a tmpfs. 0 for none",
	)
	f.StringVar(
		&c.inputs.Redis, "buffer-redis", "",
		"Redis that takes request bodies when memory and disk are full: redis://host:port/db, rediss:// for TLS; empty for none",
	)
	f.StringVar(
		&c.inputs.RedisSecret, "buffer-redis-secret", "",
		"secret file of --secrets-dir with username and password for --buffer-redis; empty for none",
	)
	f.Int64Var(
		&c.inputs.RedisLimit, "buffer-redis-limit", 1<<30,
		"bytes of inputs that this node may have in --buffer-redis at a time",
	)
	f.Int64Var(
		&c.inputs.Quota.Bytes, "buffer-quota", 0,
		"bytes of the buffer that one function may have at a time; 0 for three quarters of it",
	)
	f.IntVar(
		&c.inputs.Quota.Entries, "buffer-quota-inputs", 768,
		"inputs that one function may have in the buffer at a time",
	)
	f.DurationVar(&c.cacheAge, "cache-age", 24*time.Hour,
		"how long an object is kept that no request uses, in room of the buffer that inputs do not need; 0 to keep none")
	f.BoolVar(&c.cacheShare, "cache-share", false,
		"share what the node holds with the nodes of its site, and ask them before the stores")
	f.Int64Var(&c.inputs.Spare, "cache-spare", 20,
		"percent of the file systems of inputs that stay free beside what is kept")
	f.Int64Var(&c.writeBackLimit, "write-back-limit", 1<<30,
		"bytes of objects that functions have written into buckets with write: back, and that are not in their stores yet; 0 has all writes go through")
	f.DurationVar(&c.writeBackAfter, "write-back-after", 5*time.Minute,
		"how long after the list of stores says write: back of a bucket nodes begin with it; longer than the list takes to reach all nodes")
	f.StringVar(&c.otlp, "otlp", "", "gRPC target that takes traces (OTLP), for example unix:/run/headstart/otlp.sock; empty for none")
	f.BoolVar(
		&c.otlpMutualTLS, "otlp-mutual-tls", false,
		"send traces by mutual TLS, with this node's certificate, to a control plane at --otlp",
	)
	f.StringVar(&c.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&c.nodeName, "node-name", os.Getenv("NODE_NAME"), "kubernetes: the name of this node; by default NODE_NAME of the environment")
	f.StringVar(&c.podIP, "pod-ip", os.Getenv("POD_IP"), "kubernetes: the pod's address, of IPv4 or IPv6; by default POD_IP of the environment")
	f.StringVar(&c.identity, "identity", "", "kubernetes: host:port where the control plane issues this node's certificate")
	f.StringVar(&c.token, "token", "/var/run/secrets/headstart/token", "kubernetes: file with the service account's token for --identity")
	f.StringVar(&c.revoked, "revoked", "", "kubernetes: directory with a file named like each node whose certificate does not count; empty for none")
	f.IntVar(&c.gatewayUID, "gateway-uid", -1, "kubernetes: user of the gateways, who may open their sockets; -1 leaves them to the daemon's")
	f.StringVar(&c.meshCA, "mesh-ca", "", "kubernetes: host:port of the mesh's authority (istiod), empty for no mesh")
	f.StringVar(&c.meshToken, "mesh-token", "/var/run/secrets/tokens/istio-token", "kubernetes: file with the token for --mesh-ca")
	f.StringVar(&c.meshRoot, "mesh-root", "/var/run/secrets/istio/root-cert.pem", "kubernetes: file with the mesh's root certificate (PEM)")
	f.StringVar(&c.meshTrustDomain, "mesh-trust-domain", mesh.DefaultTrustDomain, "kubernetes: trust domain of the mesh")
	f.StringVar(&c.meshCluster, "mesh-cluster", "", "kubernetes: the mesh's id of this cluster, empty if it has no other")
}
