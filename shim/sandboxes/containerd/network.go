package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"golang.org/x/sys/unix"
)

const (
	// attachTries and attachRetry: a plugin takes some tens of milliseconds, and what is
	// still wrong after a few of them is not going to pass.
	attachTries = 4
	attachRetry = 50 * time.Millisecond
)

// interfaceName is the sandbox's side of its link, as every CNI runtime calls it.
const interfaceName = "eth0"

// network gives each sandbox a network namespace on a bridge, by the CNI plugins
// bridge and host-local.
type network struct {
	namespaces string // directory of the namespaces' bind mounts
	cni        *libcni.CNIConfig
	list       *libcni.NetworkConfigList
}

func newNetwork(cfg Config) (*network, error) {
	dir := filepath.Join(cfg.StateDir, "netns")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the directory for network namespaces: %w", err)
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "headstart",
		"plugins": []any{map[string]any{
			"type": "bridge", "bridge": cfg.Bridge, "isGateway": true, "ipMasq": false,
			"ipam": map[string]any{
				"type":    "host-local",
				"dataDir": filepath.Join(cfg.StateDir, "ipam"),
				"ranges":  [][]any{{map[string]any{"subnet": cfg.PodSubnet.String()}}},
				"routes":  []any{map[string]any{"dst": "0.0.0.0/0"}},
			},
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing the CNI configuration: %w", err)
	}
	list, err := libcni.ConfListFromBytes(conf)
	if err != nil {
		return nil, fmt.Errorf("reading the CNI configuration: %w", err)
	}
	// The library's default is made at the first use, and two of them would race.
	exec := &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}
	return &network{namespaces: dir, list: list,
		cni: libcni.NewCNIConfigWithCacheDir([]string{cfg.PluginDir}, filepath.Join(cfg.StateDir, "cni"), exec)}, nil
}

func (n *network) conf(id, namespace string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: namespace, IfName: interfaceName}
}

// attach puts the namespace on the bridge and returns its address.
func (n *network) attach(ctx context.Context, id string) (netip.Addr, error) {
	res, err := n.add(ctx, id)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("attaching a sandbox to the network: %w", err)
	}
	r, err := types100.GetResult(res)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("reading the CNI plugin's answer: %w", err)
	}
	for _, ip := range r.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			return a.Unmap(), nil
		}
	}
	return netip.Addr{}, errors.New("the CNI plugin gave the sandbox no address")
}

// add calls the plugins, again when they fail: those of a daemon that was killed finish
// behind its back, and two that make or change the bridge at once disturb each other.
func (n *network) add(ctx context.Context, id string) (types.Result, error) {
	conf := n.conf(id, n.path(id))
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval = attachRetry
	return backoff.Retry(ctx, func() (types.Result, error) {
		res, err := n.cni.AddNetworkList(ctx, n.list, conf)
		if err != nil {
			err = errors.Join(err, n.cni.DelNetworkList(ctx, n.list, conf))
		}
		return res, err
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(attachTries))
}

// detach undoes attach and newNamespace, or as much of them as there is. What it cannot
// detach keeps its name, so that the next sweep tries again.
func (n *network) detach(ctx context.Context, id string) error {
	path := n.path(id)
	var fs unix.Statfs_t
	switch err := unix.Statfs(path, &fs); {
	case errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return fmt.Errorf("looking for a network namespace: %w", err)
	case fs.Type != unix.NSFS_MAGIC:
		// Only its name is left, as after a reboot. The plugins still have its address.
		path = ""
	}
	if err := n.cni.DelNetworkList(ctx, n.list, n.conf(id, path)); err != nil {
		return fmt.Errorf("detaching a sandbox from the network: %w", err)
	}
	return n.removeNamespace(id)
}

// sweep detaches every namespace that is not in keep.
func (n *network) sweep(ctx context.Context, keep map[string]bool) error {
	entries, err := os.ReadDir(n.namespaces)
	if err != nil {
		return fmt.Errorf("reading the directory of network namespaces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if !keep[e.Name()] {
			errs = append(errs, n.detach(ctx, e.Name()))
		}
	}
	return errors.Join(errs...)
}
