// Package cluster brings up a real Kubernetes cluster on this machine, for tests: etcd, the
// API server and the controllers as processes, and nodes with a network, a root file system
// and a containerd, a kubelet and a kube-proxy of their own (package machine). It needs root,
// and the programs that build.sh builds. Only one fits a machine at a time.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster/machine"
)

// DefaultDir is where a cluster keeps its state.
const DefaultDir = "/var/lib/headstart-cluster"

// OwnLog is the file in the directory of the logs that a supervisor in the background writes
// its progress to.
const OwnLog = "cluster.log"

// Registry is the cluster's container registry, over plain HTTP. Nodes, pods and this machine
// reach it by this name.
const Registry = "10.99.0.1:5000"

// Services is the network of the services' addresses. This machine reaches them through the
// first node.
var Services = netip.MustParsePrefix("10.96.0.0/16")

// Config says what cluster to bring up.
type Config struct {
	// Dir holds its state; its logs stay there when it is taken down. Empty: DefaultDir.
	Dir string
	// BinDir holds the programs. Empty: $HEADSTART_CLUSTER_BIN, or where build.sh puts them.
	BinDir string
	// Nodes are the nodes' names, DNS labels. Empty: node1, node2, node3.
	Nodes []string
	// Reuse takes the cluster that is running with this Dir already, if there is one. Its Down
	// then leaves it running, for the next one who reuses it. What earlier users made in it is
	// still there.
	Reuse bool
	// Progress is told of each step as it ends, with how long it took. May be nil.
	Progress func(string)
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		c.Dir = DefaultDir
	}
	if len(c.Nodes) == 0 {
		c.Nodes = []string{"node1", "node2", "node3"}
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.BinDir == "" {
		c.BinDir = os.Getenv("HEADSTART_CLUSTER_BIN")
	}
	if c.BinDir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return c, fmt.Errorf("finding the cluster's programs: %w", err)
		}
		c.BinDir = filepath.Join(cache, "headstart", "cluster-1.36.3")
	}
	for _, dir := range []*string{&c.Dir, &c.BinDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return c, err
		}
		*dir = abs
	}
	return c, nil
}

// Node is one node.
type Node struct {
	Name      string       `json:"name"`
	Address   netip.Addr   `json:"address"`
	PodSubnet netip.Prefix `json:"podSubnet"`

	NetNS string `json:"netns"` // path of its network namespace
	Dir   string `json:"dir"`   // what it has on this machine's disk
	Bin   string `json:"bin"`
}

func (n Node) cgroup() string { return "/" + name + "/" + n.Name }

// Has tells whether a process is of the cluster's nodes, by its /proc/PID/cgroup.
func Has(cgroups string) bool { return strings.Contains(cgroups, ":/"+name+"/") }

func (n Node) machine() machine.Config {
	return machine.Config{Name: n.Name, Dir: n.Dir, NetNS: n.NetNS, Cgroup: n.cgroup(), Programs: n.Bin}
}

// Command is a command to run on the node, with the node's files and network. What it leaves
// running ends with the node.
func (n Node) Command(ctx context.Context, command ...string) *exec.Cmd {
	return machine.Open(n.machine()).Command(ctx, command...)
}

// Run runs a command on the node and returns what it writes to stdout.
func (n Node) Run(ctx context.Context, command ...string) (string, error) {
	return machine.Open(n.machine()).Run(ctx, command...)
}

// PodLogs is where this machine has the logs of the node's pods, a directory for each.
func (n Node) PodLogs() string { return filepath.Join(machine.Open(n.machine()).Logs(), "pods") }

// ImportImage puts an image of a tar archive (OCI, or of "docker save") on the node.
func (n Node) ImportImage(ctx context.Context, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := n.Command(ctx, "ctr", "--namespace", "k8s.io", "images", "import", "-")
	cmd.Stdin = f
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing %s on %s: %w: %s", archive, n.Name, err, out)
	}
	return nil
}

// Status is what a running cluster says about itself.
type Status struct {
	Dir        string   `json:"dir"`
	Kubeconfig string   `json:"kubeconfig"`
	Nodes      []Node   `json:"nodes"`
	Processes  []string `json:"processes"` // for people to read
}

// controller does what needs the process that supervises the cluster.
type controller interface {
	stopNode(ctx context.Context, name string) error
	startNode(ctx context.Context, name string) error
	restartContainerd(ctx context.Context, name string) error
	stopAPIServer(ctx context.Context) error
	startAPIServer(ctx context.Context) error
	down(ctx context.Context) error
}

// Cluster is a running cluster.
type Cluster struct {
	controller
	status Status
	// own is the supervisor if it is in this process.
	own *supervisor
	// reused is somebody else's to take down.
	reused bool
}

// ErrNotRunning says that no cluster has this state directory.
var ErrNotRunning = errors.New("no cluster is running")

// Up brings a cluster up and returns when all of its nodes are ready. What a killed one left
// is removed first. On an error nothing is left but logs. The cluster ends with Down, and
// its processes end with this one.
func Up(ctx context.Context, c Config) (*Cluster, error) {
	if c.Reuse {
		running, err := Attach(ctx, c.Dir)
		if !errors.Is(err, ErrNotRunning) {
			if err == nil {
				running.reused = true
			}
			return running, err
		}
	}
	s, err := newSupervisor(c)
	if err != nil {
		return nil, err
	}
	if err := s.up(ctx); err != nil {
		return nil, errors.Join(err, s.end(context.WithoutCancel(ctx)))
	}
	return &Cluster{controller: s, status: s.status(), own: s}, nil
}

// Attach returns the cluster that runs with a state directory, or ErrNotRunning. Empty:
// DefaultDir.
func Attach(ctx context.Context, dir string) (*Cluster, error) {
	c, err := Config{Dir: dir}.withDefaults()
	if err != nil {
		return nil, err
	}
	r := newRemote(c.Dir)
	status, err := r.status(ctx)
	if err != nil {
		return nil, err
	}
	return &Cluster{controller: r, status: status}, nil
}

// Sweep removes what a killed cluster left. With nothing left it does nothing.
func Sweep(ctx context.Context, c Config) error {
	s, err := newSupervisor(c)
	if err != nil {
		return err
	}
	return s.end(ctx)
}

// Down takes the cluster down, unless it is reused, and returns when nothing is left of it but
// its logs.
func (c *Cluster) Down(ctx context.Context) error {
	switch {
	case c.reused:
		return nil
	case c.own == nil:
		return c.down(ctx)
	}
	return c.own.end(ctx)
}

// Done is closed when somebody else has asked for the cluster's end; Down then waits for it.
// It is nil unless Up returned the cluster.
func (c *Cluster) Done() <-chan struct{} {
	if c.own == nil {
		return nil
	}
	return c.own.ended
}

// Kubeconfig is the path of an administrator's client configuration.
func (c *Cluster) Kubeconfig() string { return c.status.Kubeconfig }

// REST is the same for client-go, without its default limits on the rate of requests.
func (c *Cluster) REST() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's client configuration: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// Bin is the directory of the cluster's programs.
func (c *Cluster) Bin() string { return c.status.Nodes[0].Bin }

// Kubectl is a kubectl command.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin(), "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	return cmd
}

// Status is what the cluster consists of.
func (c *Cluster) Status() Status { return c.status }

// LogDir holds the logs of all processes.
func (c *Cluster) LogDir() string { return filepath.Join(c.status.Dir, "log") }

// Nodes are all nodes, stopped ones too.
func (c *Cluster) Nodes() []Node { return slices.Clone(c.status.Nodes) }

// Node is the node of a name.
func (c *Cluster) Node(name string) (Node, error) { return find(c.status.Nodes, name) }

func find(nodes []Node, name string) (Node, error) {
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, fmt.Errorf("the cluster has no node %s", name)
	}
	return nodes[i], nil
}

// ImportImage puts an image of a tar archive on all nodes.
func (c *Cluster) ImportImage(ctx context.Context, archive string) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range c.status.Nodes {
		g.Go(func() error { return n.ImportImage(ctx, archive) })
	}
	return g.Wait()
}

// StopNode makes a node disappear like one that lost its power: silent, and all that ran on
// it is gone.
func (c *Cluster) StopNode(ctx context.Context, name string) error { return c.stopNode(ctx, name) }

// StartNode starts a stopped node, with the files it had, and returns when it is ready.
func (c *Cluster) StartNode(ctx context.Context, name string) error { return c.startNode(ctx, name) }

// RestartContainerd ends a node's containerd, which is then started again as always when it
// ends, and returns when the new one serves.
func (c *Cluster) RestartContainerd(ctx context.Context, name string) error {
	return c.restartContainerd(ctx, name)
}

// StopAPIServer stops the API server; all else goes on.
func (c *Cluster) StopAPIServer(ctx context.Context) error { return c.stopAPIServer(ctx) }

// StartAPIServer starts the API server again and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error { return c.startAPIServer(ctx) }

// describe is a process for people to read.
func describe(s process.Status) string {
	text := fmt.Sprintf("%-28s %-8s pid %d", s.Name, s.State, s.PID)
	if s.Restarts > 0 {
		text += fmt.Sprintf(", started again %d times, last end: %s", s.Restarts, s.LastExit)
	}
	return text
}
