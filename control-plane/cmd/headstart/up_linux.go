package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded"
	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// downTimeout bounds the end of the platform after Ctrl-C.
const downTimeout = 60 * time.Second

func upCommand(c *cli) *cobra.Command {
	var o embedded.Options
	var nodes, subnet string
	var count int
	cmd := &cobra.Command{
		Use: "up", Short: "Run the embedded platform on this machine until Ctrl-C (needs root)", Args: cobra.NoArgs,
		Long: `Run the embedded platform: a control plane, and nodes with a gateway (Envoy), a daemon
and a containerd of their own, each node in a network namespace, which needs root. It runs
until Ctrl-C. Functions and images stay in --state-dir for the next start; everything
else is removed when the command ends.`,
		Example: "  headstart up\n  headstart up --nodes 2 --stores stores.yaml --secrets-dir ./secrets",
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			o.RunDir = c.runDir
			o.Progress = func(step string) { fmt.Fprintln(cmd.ErrOrStderr(), "·", step) }
			if o.Nodes = strings.FieldsFunc(nodes, func(r rune) bool { return r == ',' }); len(o.Nodes) == 0 {
				for i := range count {
					o.Nodes = append(o.Nodes, fmt.Sprintf("node-%d", i+1))
				}
			}
			if o.Subnet, err = netip.ParsePrefix(subnet); err != nil {
				return fmt.Errorf("--subnet %q: use an IPv4 range such as %s", subnet, network.DefaultSubnet)
			}
			if o.BinDir == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				o.BinDir = filepath.Dir(self)
			}
			if err := makeAbsolute(&o.StateDir, &o.RunDir, &o.BinDir, &o.CNIPlugins, &o.Stores, &o.Destinations, &o.SecretsDir); err != nil {
				return err
			}
			return up(cmd, o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&count, "nodes", 1, "number of nodes")
	f.StringVar(&nodes, "node-names", "", "names of the nodes, with commas between; instead of --nodes")
	f.StringVar(
		&o.Name, "name", "headstart",
		"distinguishes this platform's network devices from another's: up to 11 letters and digits, a letter first; no other running platform may have it",
	)
	f.StringVar(&o.StateDir, "state-dir", "/var/lib/headstart", "directory for functions, images and logs")
	f.StringVar(&o.BinDir, "bin-dir", "", "directory of Headstart's programs, Envoy and the filter (default: this program's own)")
	f.StringVar(&o.CNIPlugins, "cni-plugins", "/usr/lib/cni", "directory of the CNI plugins bridge and host-local")
	f.StringVar(&o.Stores, "stores", "", "list of the stores that inputs may come from (docs/reference/stores.md)")
	f.StringVar(&o.Destinations, "destinations", "",
		"list of the destinations that functions may be connected to (docs/reference/connections.md)")
	f.StringVar(&o.SecretsDir, "secrets-dir", "/etc/headstart/secrets", "directory of the secrets of stores and destinations, one file per name")
	f.StringVar(&subnet, "subnet", network.DefaultSubnet.String(), "IPv4 range for nodes and sandboxes")
	f.Uint32Var(&o.GatewayPort, "gateway-port", 8080, "port of each node's gateway")
	f.Int64Var(&o.Buffer.Disk, "buffer-limit", 4<<30, "bytes of inputs that each node may have on disk at a time")
	f.Int64Var(&o.Buffer.Memory, "buffer-memory", 0, "bytes of inputs that each node may have in memory at a time, before the disk is used; 0 for none")
	f.Int64Var(&o.Buffer.Quota, "buffer-quota", 0, "bytes of a node's buffer that one function may have at a time; 0 for three quarters of it")
	f.IntVar(&o.Buffer.QuotaInputs, "buffer-quota-inputs", 768, "inputs that one function may have in a node's buffer at a time")
	f.DurationVar(&o.Buffer.CacheAge, "cache-age", 24*time.Hour,
		"how long an object is kept that no request uses, in room of the buffer that inputs do not need; 0 to keep none")
	f.IntVar(&o.Buffer.CacheSpare, "cache-spare", 20, "percent of the file systems of inputs that stay free beside what is kept")
	f.StringVar(&o.Buffer.Redis, "buffer-redis", "", "Redis that takes request bodies when memory and disk are full: redis://host:port/db, rediss:// for TLS; empty for none")
	f.StringVar(&o.Buffer.RedisSecret, "buffer-redis-secret", "", "secret file of --secrets-dir with username and password for --buffer-redis; empty for none")
	f.Int64Var(&o.Buffer.RedisLimit, "buffer-redis-limit", 1<<30, "bytes of inputs that each node may have in --buffer-redis at a time")
	f.Int64Var(&o.WriteBackLimit, "write-back-limit", 1<<30,
		"bytes of objects that each node may have on disk for buckets with write: back before their stores have them; 0 has all writes go through")
	f.StringVar(&o.OTLPForward, "otlp-forward", "", "host:port of your own OpenTelemetry collector (gRPC), which gets all traces too")
	f.StringVar(&o.LogLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// makeAbsolute changes paths of the working directory into such that hold for the child
// processes too. Empty ones stay: they are of options that are not used.
func makeAbsolute(paths ...*string) error {
	for _, p := range paths {
		if *p == "" {
			continue
		}
		absolute, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = absolute
	}
	return nil
}

// startError is what the user gets to know of a start that failed.
func startError(err error) error {
	var left *embedded.CleanupError
	if errors.Is(err, context.Canceled) && !errors.As(err, &left) {
		return errors.New("interrupted; nothing is left running")
	}
	return err
}

// down ends the platform when its requests are answered, which a second Ctrl-C does not wait for. Then it says what is
// on the nodes' disks only.
func down(ctx context.Context, p *embedded.Platform, out io.Writer) error {
	patient, done := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer done()
	fmt.Fprintln(out, "· stopping; requests under way have some seconds, unless you press Ctrl-C again")
	p.Drain(patient)
	stop, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	err := p.Stop(stop)
	left, failed := p.Left()
	tellLeft(out, left)
	return errors.Join(err, failed)
}

// tellLeft says which objects nodes have not uploaded. There may be none.
func tellLeft(out io.Writer, left []embedded.Left) {
	for _, l := range left {
		fmt.Fprintf(out, "· node %s: objects on its disk that are not in their stores yet: %d (%s); "+
			"the next headstart up with this node and --state-dir uploads them\n", l.Node, l.Objects, megabytes(l.Bytes))
	}
}

// next is what to do once the platform is up.
func next(o embedded.Options) string {
	at := ""
	if o.RunDir != defaultRunDir {
		at = " --run-dir " + o.RunDir
	}
	return fmt.Sprintf("Next: headstart apply -f service.yaml%[1]s; headstart status%[1]s. Logs: %[2]s. Ctrl-C ends it.", at, filepath.Join(o.StateDir, "log"))
}

// warnOfGateways says what gateways cannot do, or refuse. Whatever that is, the platform is up.
func warnOfGateways(ctx context.Context, c *admin.Client, out io.Writer) {
	status, err := c.Status(ctx)
	if err != nil {
		fmt.Fprintln(out, "warning: the state of the gateways is not known:", err)
		return
	}
	for _, p := range status.Routing {
		if p.Function == "" {
			fmt.Fprintf(out, "warning: gateway %s: %s\n", strings.Join(p.Gateways, ", "), nodeapi.Printable(p.Message))
		}
	}
}

func up(cmd *cobra.Command, o embedded.Options) (err error) {
	ctx, out := cmd.Context(), cmd.ErrOrStderr()
	began := time.Now()
	p, err := embedded.Start(ctx, o)
	if err != nil {
		return startError(err)
	}
	defer func() { err = errors.Join(err, down(context.WithoutCancel(ctx), p, out)) }()
	if w := p.Warning(); w != "" {
		fmt.Fprintln(out, "warning:", w)
	}
	fmt.Fprintf(out, "Headstart is up (%.1f s). Gateways:\n", time.Since(began).Seconds())
	for _, n := range p.Nodes() {
		fmt.Fprintf(out, "  %-12s http://%s\n", n.Name, netip.AddrPortFrom(n.Address, uint16(o.GatewayPort)))
	}
	warnOfGateways(ctx, p.Client(), out)
	fmt.Fprintln(out, next(o))
	<-ctx.Done()
	return nil
}
