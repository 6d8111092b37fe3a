package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster/machine"
	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
)

const (
	// name is that of the network's devices and of the cgroups.
	name = "hsk8s"
	// lockAddress is an abstract socket (unix(7)): it can be held once per machine, and the
	// kernel lets go of it when its holder dies.
	lockAddress = "@headstart-test-cluster"
	// stopTimeout is for processes that are asked to end, before they are killed.
	stopTimeout = 5 * time.Second
	// endPatience is the same when the whole cluster ends, and nobody needs what they would save.
	endPatience = time.Second
	// endTimeout bounds taking the cluster down.
	endTimeout = 2 * time.Minute
)

// subnet holds the nodes and their pods: 10.99.0.1 is this machine, 10.99.0.11 the first
// node, 10.99.1.0/24 its pods.
var subnet = netip.MustParsePrefix("10.99.0.0/16")

// supervisor owns a cluster's processes and all else that it consists of.
type supervisor struct {
	c       Config
	lock    net.Listener
	control *control

	network   *network.Network
	authority *pki.Authority
	nodes     []Node

	mu     sync.Mutex // held by whoever starts or stops something
	groups map[string]*process.Group
	logs   []*os.File

	once  sync.Once
	ended chan struct{} // closed when nothing is left
	err   error         // of the end; valid after ended
}

func newSupervisor(c Config) (*supervisor, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a cluster needs root, for network namespaces and containers")
	}
	lock, err := net.Listen("unix", lockAddress)
	if err != nil {
		return nil, fmt.Errorf("another cluster is running on this machine: %w", err)
	}
	return &supervisor{c: c, lock: lock, groups: map[string]*process.Group{}, ended: make(chan struct{})}, nil
}

// up brings all up; end takes down what it did, also after an error.
func (s *supervisor) up(ctx context.Context) error {
	if err := s.checkPrograms(); err != nil {
		return err
	}
	if err := s.step("removing what an earlier cluster left", func() error { return s.sweep(ctx) }); err != nil {
		return err
	}
	if err := s.step("network, file systems and certificates", func() error { return s.lay(ctx) }); err != nil {
		return err
	}
	if err := s.step("etcd and API server", func() error { return s.startStore(ctx) }); err != nil {
		return err
	}
	g, parts := errgroup.WithContext(ctx)
	g.Go(func() error {
		return s.step("controllers, DNS and registry", func() error { return s.startControllers(parts) })
	})
	for _, n := range s.nodes {
		g.Go(func() error {
			return s.step("node "+n.Name, func() error { return s.boot(parts, n) })
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var err error
	s.control, err = serveControl(s)
	return err
}

// step tells how long something took.
func (s *supervisor) step(what string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s.c.Progress(fmt.Sprintf("%s: %.1f s", what, time.Since(began).Seconds()))
	return nil
}

// lay makes what the processes need to start.
func (s *supervisor) lay(ctx context.Context) (err error) {
	if err := s.emptyLogs(); err != nil {
		return err
	}
	if err := s.raiseLimits(); err != nil {
		return err
	}
	if s.network, err = network.Open(ctx, network.Config{Name: name, Nodes: s.c.Nodes, Subnet: subnet}); err != nil {
		return err
	}
	if s.network.Warning != "" {
		s.c.Progress("note: " + s.network.Warning)
	}
	for _, n := range s.network.Nodes() {
		s.nodes = append(s.nodes, Node{Name: n.Name, Address: n.Address, PodSubnet: n.PodSubnet, NetNS: n.Namespace,
			Dir: s.nodeDir(n.Name), Bin: s.c.BinDir})
	}
	if err := s.routeServices(); err != nil {
		return err
	}
	if s.authority, err = pki.New(); err != nil {
		return err
	}
	if err := s.writeCertificates(); err != nil {
		return err
	}
	var g errgroup.Group
	g.Go(func() error { return writePause(s.path("pause.tar"), filepath.Join(s.c.BinDir, "pause")) })
	for _, n := range s.nodes {
		g.Go(func() error { return s.makeMachine(ctx, n) })
	}
	return g.Wait()
}

// emptyLogs removes the logs of an earlier cluster. One is not ours to remove: that of who
// runs us.
func (s *supervisor) emptyLogs() error {
	if err := os.MkdirAll(s.path("log"), 0o755); err != nil {
		return err
	}
	old, err := filepath.Glob(s.path("log", "*.log"))
	if err != nil {
		return err
	}
	for _, log := range old {
		if filepath.Base(log) == OwnLog {
			continue
		}
		if err := os.Remove(log); err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) makeMachine(ctx context.Context, n Node) (err error) {
	c := n.machine()
	if c.Files, err = s.nodeFiles(ctx, n); err != nil {
		return err
	}
	c.Links = map[string]string{}
	for _, p := range plugins {
		c.Links["/opt/cni/bin/"+p] = "/usr/local/bin/cni/" + p
	}
	_, err = machine.Make(c)
	return err
}

// end takes the cluster down, once; all callers get the same error.
func (s *supervisor) end(ctx context.Context) error {
	err := s.down(ctx)
	if s.control != nil {
		s.control.close()
	}
	return err
}

// down is end without the control socket, over which it may have been asked for.
func (s *supervisor) down(ctx context.Context) error {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(ctx, endTimeout)
		defer cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		// Nobody needs what they would tidy up, so everything may end at the same time, and
		// machines are killed with all their pods.
		var wg sync.WaitGroup
		for group := range s.groups {
			wg.Go(func() { s.stop(ctx, group, endPatience) })
		}
		wg.Wait()
		clear(s.groups)
		s.err = s.sweep(ctx)
		for _, l := range s.logs {
			s.err = errors.Join(s.err, l.Close())
		}
		s.err = errors.Join(s.err, s.lock.Close())
		close(s.ended)
	})
	return s.err
}

// sweep removes all that a cluster of this state directory consists of, but for its logs.
func (s *supervisor) sweep(ctx context.Context) error {
	var errs []error
	left, err := os.ReadDir(s.path("nodes"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	var g errgroup.Group
	for _, e := range left {
		n := Node{Name: e.Name(), Dir: s.nodeDir(e.Name())}
		g.Go(func() error { return machine.Open(n.machine()).Sweep(ctx) })
	}
	errs = append(errs, g.Wait(), network.Sweep(ctx, name))
	if err := errors.Join(errs...); err != nil {
		return err // what is left names what is to be swept next time
	}
	if err := containerd.SweepMounts(s.c.Dir); err != nil {
		return err
	}
	errs = append(errs, s.restoreLimits())
	for _, made := range []string{"nodes", "pki", "etcd", "registry", "pause.tar", kubeconfigFile, controlFile} {
		errs = append(errs, os.RemoveAll(s.path(made)))
	}
	return errors.Join(errs...)
}

// start starts a process in a group of processes that stop together.
func (s *supervisor) start(ctx context.Context, group string, spec process.Spec) error {
	log, err := os.OpenFile(s.path("log", spec.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	g, err := s.group(group, log)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	spec.Log, spec.Restart = log, true
	return g.Start(ctx, spec)
}

// group is the group of a name, and keeps a log open for it.
func (s *supervisor) group(name string, log *os.File) (*process.Group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
		return nil, ErrNotRunning
	default:
	}
	s.logs = append(s.logs, log)
	g, ok := s.groups[name]
	if !ok {
		g = process.New(func(e process.Exit) {
			if !e.Stopping {
				s.c.Progress(fmt.Sprintf("%s ended (%v) and is started again", e.Name, e.Err))
			}
		})
		s.groups[name] = g
	}
	return g, nil
}

// stop ends a group's processes, by force after the time given.
func (s *supervisor) stop(ctx context.Context, group string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if g := s.groups[group]; g != nil {
		g.Stop(ctx)
	}
}

func (s *supervisor) status() Status {
	st := Status{Dir: s.c.Dir, Kubeconfig: s.path(kubeconfigFile), Nodes: slices.Clone(s.nodes)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		for _, p := range g.Status() {
			st.Processes = append(st.Processes, describe(p))
		}
	}
	slices.Sort(st.Processes)
	return st
}

// programs are what the cluster itself runs.
var programs = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "coredns", "registry",
	"containerd", "containerd-shim-runc-v2", "ctr", "runc", "kubelet", "kube-proxy", "pause", "cni/bridge"}

func (s *supervisor) checkPrograms() error {
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(s.c.BinDir, p)); err != nil {
			return fmt.Errorf("a program is missing: %w; e2e/cluster/build.sh builds it", err)
		}
	}
	return nil
}

func (s *supervisor) path(parts ...string) string {
	return filepath.Join(append([]string{s.c.Dir}, parts...)...)
}

func (s *supervisor) nodeDir(node string) string { return s.path("nodes", node) }

func (s *supervisor) gateway() netip.Addr { return s.network.Gateway() }

func (s *supervisor) at(port int) string {
	return net.JoinHostPort(s.gateway().String(), strconv.Itoa(port))
}

func (s *supervisor) registry() string { return s.at(registryPort) }

// drop stops a group, which can be started anew.
func (s *supervisor) drop(ctx context.Context, group string, patience time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop(ctx, group, patience)
	delete(s.groups, group)
}
