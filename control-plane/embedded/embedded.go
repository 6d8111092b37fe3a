// Package embedded is the platform of `headstart up`: control plane, nodes and
// gateways on one machine, each node in a network namespace of its own. It starts real
// processes, keeps them running, and leaves nothing behind.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/control-plane/embedded/pki"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
)

const (
	// controlPlaneName is the name in the control plane's certificate.
	controlPlaneName = "headstart-controlplane"
	// controlPlanePort and peerPort are inside the platform's own subnet.
	controlPlanePort = 9460
	peerPort         = 9461
	// stopTimeout bounds the whole end of the platform.
	stopTimeout = 60 * time.Second
	// logMegabytes and logBackups bound the log of each process.
	logMegabytes = 16
	logBackups   = 1
	// gatewayWorkers is the number of Envoy's worker threads per node: several nodes
	// share the machine.
	gatewayWorkers = 2
)

// Options say what to start. All but Subnet, Stores, Destinations, SecretsDir and OTLPForward are
// needed.
type Options struct {
	// Name tells this platform's network devices from another's: letters and digits. One
	// platform at a time has it.
	Name string
	// Nodes are the nodes' names, DNS labels.
	Nodes []string
	// Subnet is for nodes and sandboxes; the zero value means network.DefaultSubnet.
	Subnet netip.Prefix
	// StateDir outlives the platform: functions, images, logs. This and all paths below
	// are absolute.
	StateDir string
	// RunDir holds the sockets and goes with the platform.
	RunDir string
	// BinDir holds Headstart's programs, Envoy and the filter.
	BinDir string
	// CNIPlugins is the directory of the plugins bridge and host-local.
	CNIPlugins string
	// Stores is the operator's list of stores; empty: none.
	Stores string
	// Destinations is the operator's list of destinations; empty: none.
	Destinations string
	// SecretsDir holds the secrets of both; empty: none.
	SecretsDir string
	// OTLPForward is the gRPC target of the user's own collector.
	OTLPForward string
	GatewayPort uint32
	Buffer      Buffer
	// WriteBackLimit is how many bytes of objects each node may have that their stores do not have yet; 0: all writes go
	// through.
	WriteBackLimit int64
	LogLevel       string
	// Progress is told each step.
	Progress func(step string)
}

// Platform is the running platform.
type Platform struct {
	o        Options
	locks    []io.Closer
	resolver string // what the nodes cannot resolve; empty: nothing
	network  *network.Network
	pki      *pki.Authority
	// Gateways end last of those that a request passes, so that daemons can answer what waits in
	// them. Both end before the containerds do, so that what runs in those can be removed in
	// between.
	daemons, gateways, containerds *process.Group
	logsMu                         sync.Mutex // the nodes start at the same time
	logs                           []io.Closer
	partsMu                        sync.Mutex // who writes the parts writes the newest
}

// CleanupError says that something of this platform or of an earlier one may be left.
type CleanupError struct{ Err error }

func (e *CleanupError) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e *CleanupError) Unwrap() error { return e.Err }

// Start starts the platform and returns when all nodes have joined. What an earlier one
// of the same RunDir, StateDir and Name left behind is removed first. On error nothing is
// left, unless a CleanupError is among its causes.
func Start(ctx context.Context, o Options) (_ *Platform, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &Platform{o: o}
	if p.locks, err = takeLocks(namesDir, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			if left := p.Stop(stop); left != nil {
				err = errors.Join(err, &CleanupError{left})
			}
		}
	}()
	onExit := func(e process.Exit) {
		if !e.Stopping {
			o.Progress(fmt.Sprintf("%s ended (%v) and is started again", e.Name, e.Err))
		}
	}
	p.daemons, p.gateways, p.containerds = process.New(onExit), process.New(onExit), process.New(onExit)
	for _, g := range []*process.Group{p.daemons, p.gateways, p.containerds} {
		g.Watch(p.writeParts)
	}
	if err := p.sweep(ctx); err != nil {
		return nil, &CleanupError{fmt.Errorf("removing what an earlier run left: %w", err)}
	}
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	o.Progress("control plane")
	if err := p.startControlPlane(ctx); err != nil {
		return nil, err
	}
	var g errgroup.Group
	for _, n := range p.network.Nodes() {
		g.Go(func() error {
			o.Progress("node " + n.Name)
			if err := p.startNode(ctx, n); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return p, nil
}

// Client reaches the control plane.
func (p *Platform) Client() *admin.Client { return admin.NewClient(p.run("admin.sock")) }

// Nodes are the platform's nodes with their addresses.
func (p *Platform) Nodes() []network.Node { return p.network.Nodes() }

// Gateway is this machine's address as the nodes see it.
func (p *Platform) Gateway() netip.Addr { return p.network.Gateway() }

// Warning says what the machine could not do; empty if all went well.
func (p *Platform) Warning() string {
	warnings := slices.DeleteFunc([]string{p.network.Warning, p.resolver}, func(w string) bool { return w == "" })
	return strings.Join(warnings, "; ")
}

func (p *Platform) open(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Join(p.o.StateDir, "log"), 0o700); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	if p.network, err = network.Open(ctx, network.Config{Name: p.o.Name, Nodes: p.o.Nodes, Subnet: p.o.Subnet}); err != nil {
		return err
	}
	p.resolver = resolverWarning()
	p.pki, err = pki.New(p.run("pki"))
	return err
}

func (p *Platform) startControlPlane(ctx context.Context) error {
	files, err := p.pki.Issue(controlPlaneName, p.network.Gateway())
	if err != nil {
		return err
	}
	return p.start(ctx, p.daemons, "", process.Spec{
		Name: controlPlaneName, Path: p.bin(controlPlaneName), Log: p.log(controlPlaneName), Restart: true,
		Args: []string{"--state-dir", p.o.StateDir, "--run-dir", p.o.RunDir, "--listen", p.controlPlane(),
			"--cert", files.Cert, "--key", files.Key, "--ca", files.CA, "--metrics-listen", netip.AddrPortFrom(p.network.Gateway(), metricsPort).String(),
			"--stores", p.o.Stores, "--destinations", p.o.Destinations,
			"--largest-input", strconv.FormatInt(p.o.Buffer.largest(), 10), "--otlp-forward", p.o.OTLPForward, "--log-level", p.o.LogLevel},
		Ready: process.Poll(func(ctx context.Context) error {
			_, err := p.Client().Status(ctx)
			return err
		}),
	})
}

// metricsPort is the control plane's, on the platform's own bridge.
const metricsPort = 9465

func (p *Platform) startNode(ctx context.Context, n network.Node) error {
	run, state := p.run(n.Name), p.state(n.Name)
	if err := errors.Join(os.MkdirAll(run, 0o700), os.MkdirAll(state, 0o700)); err != nil {
		return err
	}
	if err := mountMemory(run, p.o.Buffer.Memory); err != nil {
		return err
	}
	files, err := p.pki.Issue(n.Name, n.Address)
	if err != nil {
		return err
	}
	if err := p.startContainerd(ctx, n, run, state); err != nil {
		return err
	}
	if err := p.startDaemon(ctx, n, files, run, state); err != nil {
		return err
	}
	return p.startGateway(ctx, n, run)
}

func (p *Platform) startContainerd(ctx context.Context, n network.Node, run, state string) error {
	paths := containerd.Paths{Root: filepath.Join(state, "containerd"), State: filepath.Join(run, "containerd"),
		Socket: filepath.Join(run, "containerd.sock")}
	config := filepath.Join(run, "containerd.toml")
	if err := os.WriteFile(config, containerd.Config(paths), 0o600); err != nil {
		return err
	}
	name := "containerd-" + n.Name
	err := p.start(ctx, p.containerds, "", process.Spec{
		Name: name, Path: "containerd", Args: []string{"--config", config}, Log: p.log(name), Restart: true, NetNS: n.Namespace,
		// containerd finds the shim by its name, and passes on to it where the daemon is.
		Env: append(os.Environ(), "PATH="+p.o.BinDir+":"+os.Getenv("PATH"), "HEADSTART_NODE_SOCKET="+filepath.Join(run, "node.sock"),
			"HEADSTART_ROOTS="+state+":"+run),
		Ready: func(ctx context.Context) error { return containerd.WaitReady(ctx, paths.Socket) },
	})
	if err != nil { // it has ended, and has run nothing: by the socket it leaves if it was killed, Stop would ask it
		_ = os.Remove(paths.Socket)
	}
	return err
}

func (p *Platform) startDaemon(ctx context.Context, n network.Node, files pki.Files, run, state string) error {
	name := "headstart-node-" + n.Name
	return p.start(ctx, p.daemons, "", process.Spec{
		Name: name, Path: p.bin("headstart-node"), Log: p.log(name), Restart: true, NetNS: n.Namespace,
		Args: append([]string{"--state-dir", state, "--run-dir", run, "--secrets-dir", p.o.SecretsDir, "--control-plane", p.controlPlane(),
			"--cert", files.Cert, "--key", files.Key, "--ca", files.CA, "--containerd", filepath.Join(run, "containerd.sock"),
			"--cni-plugins", p.o.CNIPlugins, "--pod-subnet", n.PodSubnet.String(),
			"--filters", p.bin("filters.wasm"),
			"--gateway-port", strconv.Itoa(int(p.o.GatewayPort)),
			"--peer-listen", netip.AddrPortFrom(n.Address, peerPort).String(), "--otlp", "unix:" + p.run("otlp.sock"), "--log-level", p.o.LogLevel,
			"--write-back-limit", strconv.FormatInt(p.o.WriteBackLimit, 10),
			"--write-back-after", "0s", // all nodes get the list at once
		}, p.o.Buffer.args()...),
		Ready: process.Poll(func(ctx context.Context) error {
			s, err := p.Client().Status(ctx)
			if err != nil {
				return err
			}
			for _, joined := range s.Nodes {
				if joined.Name == n.Name {
					return nil
				}
			}
			return errors.New("the node has not joined the control plane")
		}),
	})
}

// adminSocket is Envoy's, in its node's run directory.
const adminSocket = "envoy.sock"

// startGateway starts the Envoy whose bootstrap the node's daemon has written.
func (p *Platform) startGateway(ctx context.Context, n network.Node, run string) error {
	name := "gateway-" + n.Name
	gateway := netip.AddrPortFrom(n.Address, uint16(p.o.GatewayPort))
	return p.start(ctx, p.gateways, "", process.Spec{
		Name: name, Path: p.bin("envoy"), Log: p.log(name), Restart: true, NetNS: n.Namespace,
		Args: []string{"--config-path", filepath.Join(run, "envoy.json"), "--concurrency", strconv.Itoa(gatewayWorkers),
			"--disable-hot-restart", "--log-level", "warning"},
		Ready: process.Poll(func(ctx context.Context) error { return dial(ctx, gateway) }),
	})
}

func (p *Platform) bin(name string) string { return filepath.Join(p.o.BinDir, name) }

func (p *Platform) run(name string) string { return filepath.Join(p.o.RunDir, name) }

func (p *Platform) state(name string) string { return filepath.Join(p.o.StateDir, "nodes", name) }

func (p *Platform) controlPlane() string {
	return netip.AddrPortFrom(p.network.Gateway(), controlPlanePort).String()
}

func (p *Platform) log(process string) io.Writer {
	l := &lumberjack.Logger{Filename: filepath.Join(p.o.StateDir, "log", process+".log"), MaxSize: logMegabytes, MaxBackups: logBackups}
	p.logsMu.Lock()
	defer p.logsMu.Unlock()
	p.logs = append(p.logs, l)
	return l
}
