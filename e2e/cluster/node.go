package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster/machine"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// hopelessRestarts is how often a containerd may end while it is waited for.
const hopelessRestarts = 5

// Groups of a node's processes.
func runtimeOf(node string) string { return "containerd-" + node }
func kubeletOf(node string) string { return "kubelet-" + node }

// boot starts a node's processes and waits until the cluster can use it.
func (s *supervisor) boot(ctx context.Context, n Node) error {
	if err := s.startOn(ctx, n, runtimeOf(n.Name), "containerd"); err != nil {
		return err
	}
	if err := s.awaitContainerd(ctx, n, 0); err != nil {
		return err
	}
	if err := n.ImportImage(ctx, s.path("pause.tar")); err != nil {
		return err
	}
	err := s.startOn(ctx, n, kubeletOf(n.Name), "kubelet", "--config", kubeletConfig, "--kubeconfig", kubeletClient,
		"--hostname-override", n.Name, "--node-ip", n.Address.String())
	if err != nil {
		return err
	}
	if err := s.startOn(ctx, n, kubeletOf(n.Name), "kube-proxy", "--config", proxyConfig); err != nil {
		return err
	}
	return s.awaitNode(ctx, n)
}

// startOn starts one of a node's own programs, which is started again whenever it ends.
func (s *supervisor) startOn(ctx context.Context, n Node, group, program string, args ...string) error {
	m := machine.Open(n.machine())
	command, err := m.Args(append([]string{program}, args...)...)
	if err != nil {
		return err
	}
	return s.start(ctx, group, process.Spec{Name: program + "-" + n.Name, Path: command[0], Args: command[1:], Env: m.Env()})
}

// awaitContainerd waits for a node's containerd to serve that has been started at least this
// often after the first time.
func (s *supervisor) awaitContainerd(ctx context.Context, n Node, restarts int) error {
	return poll(ctx, "containerd does not serve", func(ctx context.Context) error {
		st, err := s.containerd(n)
		if err != nil {
			return errors.Join(errHopeless, err)
		}
		if st.Restarts > restarts+hopelessRestarts {
			return errors.Join(errHopeless, fmt.Errorf("it ends again and again (%s); see its log", st.LastExit))
		}
		if st.PID == 0 || st.Restarts < restarts {
			return fmt.Errorf("it is %s", st.State)
		}
		socket := path.Join(fmt.Sprintf("/proc/%d/root", st.PID), containerdSocket)
		if _, err := os.Stat(socket); err != nil {
			return err
		}
		return containerd.WaitReady(ctx, socket)
	})
}

func (s *supervisor) containerd(n Node) (process.Status, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[runtimeOf(n.Name)]
	if g == nil {
		return process.Status{}, fmt.Errorf("node %s is stopped", n.Name)
	}
	for _, st := range g.Status() {
		return st, nil
	}
	return process.Status{}, fmt.Errorf("node %s has no containerd", n.Name)
}

// awaitNode waits until a node that may have been lost is ready again.
func (s *supervisor) awaitNode(ctx context.Context, n Node) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	return poll(ctx, "the node is not ready", func(ctx context.Context) error {
		got, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, t := range got.Spec.Taints {
			if t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable {
				return fmt.Errorf("it has the taint %s", t.Key)
			}
		}
		for _, c := range got.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it does not say that it is")
	})
}

func (s *supervisor) stopNode(ctx context.Context, node string) error {
	n, err := find(s.nodes, node)
	if err != nil {
		return err
	}
	// Its cable first: nobody shall hear of its end.
	if err := s.plug(n, netlink.LinkSetDown); err != nil {
		return err
	}
	s.drop(ctx, kubeletOf(node), 0)
	s.drop(ctx, runtimeOf(node), 0)
	return machine.Open(n.machine()).Kill(ctx)
}

func (s *supervisor) startNode(ctx context.Context, node string) error {
	n, err := find(s.nodes, node)
	if err != nil {
		return err
	}
	if _, err := s.containerd(n); err == nil {
		return fmt.Errorf("node %s is not stopped", node)
	}
	if err := machine.Open(n.machine()).Boot(ctx); err != nil {
		return err
	}
	if err := s.plug(n, netlink.LinkSetUp); err != nil {
		return err
	}
	return s.boot(ctx, n)
}

// plug changes this machine's end of a node's cable.
func (s *supervisor) plug(n Node, change func(netlink.Link) error) error {
	at, _ := s.network.Node(n.Name)
	link, err := netlink.LinkByName(at.HostVeth)
	if err != nil {
		return fmt.Errorf("finding the cable of %s: %w", n.Name, err)
	}
	if err := change(link); err != nil {
		return fmt.Errorf("changing the cable of %s: %w", n.Name, err)
	}
	return nil
}

func (s *supervisor) restartContainerd(ctx context.Context, node string) error {
	n, err := find(s.nodes, node)
	if err != nil {
		return err
	}
	st, err := s.containerd(n)
	if err != nil {
		return err
	}
	if st.PID != 0 {
		if err := unix.Kill(st.PID, unix.SIGTERM); err != nil {
			return fmt.Errorf("ending containerd of %s: %w", node, err)
		}
	}
	return s.awaitContainerd(ctx, n, st.Restarts+1)
}

// routeServices lets this machine reach services, through the first node.
func (s *supervisor) routeServices() error {
	first := s.nodes[0]
	dst, err := netlink.ParseIPNet(Services.String())
	if err != nil {
		return err
	}
	if err := netlink.RouteReplace(&netlink.Route{Dst: dst, Gw: first.Address.AsSlice()}); err != nil {
		return fmt.Errorf("adding a route to %s: %w", Services, err)
	}
	return nil
}

// writePause writes the image that every pod needs.
func writePause(archive, program string) (err error) {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	err = ociimage.Build(w, ociimage.Image{Ref: pauseImage, Entrypoint: []string{"/pause"},
		Files: map[string]ociimage.File{"/pause": {Source: program, Mode: 0o755}}})
	if err != nil {
		return err
	}
	return w.Flush()
}
