package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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
	return &network{namespaces: dir, list: list,
		cni: libcni.NewCNIConfigWithCacheDir([]string{cfg.PluginDir}, filepath.Join(cfg.StateDir, "cni"), nil)}, nil
}

// newNamespace makes the sandbox's network namespace, with its loopback device up,
// and returns its path. The path says whose it is, so that a restarted daemon can
// sweep what an earlier one left.
func (n *network) newNamespace(id string) (string, error) {
	path := filepath.Join(n.namespaces, id)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return "", fmt.Errorf("naming a network namespace: %w", err)
	}
	made := make(chan error)
	go func() {
		// Never unlocked: the thread is in the new namespace for good and dies with
		// the goroutine.
		runtime.LockOSThread()
		made <- unshareTo(path)
	}()
	if err := <-made; err != nil {
		return "", errors.Join(fmt.Errorf("making a network namespace: %w", err), n.removeNamespace(id))
	}
	return path, nil
}

func unshareTo(path string) error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

func (n *network) removeNamespace(id string) error {
	path := filepath.Join(n.namespaces, id)
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmounting a network namespace: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a network namespace: %w", err)
	}
	return nil
}

func (n *network) conf(id string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: id, NetNS: filepath.Join(n.namespaces, id), IfName: interfaceName}
}

// attach puts the namespace on the bridge and returns its address.
func (n *network) attach(ctx context.Context, id string) (netip.Addr, error) {
	res, err := n.cni.AddNetworkList(ctx, n.list, n.conf(id))
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

// detach undoes attach and newNamespace, or as much of them as there is.
func (n *network) detach(ctx context.Context, id string) error {
	if _, err := os.Stat(filepath.Join(n.namespaces, id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	if err := n.cni.DelNetworkList(ctx, n.list, n.conf(id)); err != nil {
		errs = append(errs, fmt.Errorf("detaching a sandbox from the network: %w", err))
	}
	return errors.Join(append(errs, n.removeNamespace(id))...)
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
