package embedded

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/embedded/network"
	"github.com/headstart-mesh/headstart/shim/nodeapi/destinations"
	"github.com/headstart-mesh/headstart/shim/nodeapi/field"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

// programs are what Headstart's build puts into BinDir.
var programs = []string{controlPlaneName, "headstart-node", "containerd-shim-headstart-v2", "envoy", "filters.wasm"}

// maxSocketPath is what struct sockaddr_un takes, less the final zero (unix(7)).
const maxSocketPath = 107

// longestSocket is the longest name of the sockets in a node's run directory.
const longestSocket = "containerd.sock.ttrpc"

// check says, before anything starts, what is wrong with the options, what is missing and
// how to get it.
func (o Options) check() error {
	if err := o.checkValues(); err != nil {
		return err
	}
	return errors.Join(o.checkSecrets(), o.checkMachine())
}

// checkSecrets says whose secrets cannot be read because the directory cannot. What is wrong with
// a single one may be corrected any time, and is in the status of the nodes.
func (o Options) checkSecrets() error {
	var needs []string
	if o.Stores != "" {
		list, err := stores.Load(o.Stores)
		if err != nil {
			return fmt.Errorf("--stores: %w", err)
		}
		for _, s := range list {
			if s.Secret != "" {
				needs = append(needs, fmt.Sprintf("store %q", s.Name))
			}
		}
	}
	if o.Destinations != "" {
		list, err := destinations.Load(o.Destinations, destinations.Node)
		if err != nil {
			return fmt.Errorf("--destinations: %w", err)
		}
		for _, d := range list {
			if d.Secret != "" {
				needs = append(needs, fmt.Sprintf("destination %q", d.Name))
			}
		}
	}
	if o.Buffer.RedisSecret != "" {
		needs = append(needs, "--buffer-redis")
	}
	if len(needs) == 0 {
		return nil
	}
	if _, err := os.ReadDir(o.SecretsDir); err != nil {
		return fmt.Errorf("--secrets-dir, which has the secrets of %s: %w; make the directory, or name another", strings.Join(needs, ", "), err)
	}
	return nil
}

// checkValues looks at the options alone.
func (o Options) checkValues() error {
	var errs []error
	if err := network.CheckName(o.Name); err != nil {
		errs = append(errs, fmt.Errorf("--name: %w", err))
	}
	if len(o.Nodes) == 0 {
		errs = append(errs, errors.New("--nodes: at least one node is needed"))
	}
	longest := ""
	for _, name := range o.Nodes {
		if !field.IsLabel(name) {
			errs = append(errs, fmt.Errorf("--node-names: %q is not a DNS label: up to 63 lower case letters, digits and dashes, no dash first or last", name))
		}
		if len(name) > len(longest) {
			longest = name
		}
	}
	if o.GatewayPort < 1 || o.GatewayPort > math.MaxUint16 {
		errs = append(errs, fmt.Errorf("--gateway-port %d: use a port from 1 to %d", o.GatewayPort, math.MaxUint16))
	}
	if within := strings.TrimSuffix(o.RunDir, "/") + "/"; strings.HasPrefix(o.StateDir+"/", within) {
		errs = append(errs, fmt.Errorf("--run-dir %s is removed when the platform ends, and must not hold --state-dir %s", o.RunDir, o.StateDir))
	}
	if socket := filepath.Join(o.RunDir, longest, longestSocket); len(socket) > maxSocketPath {
		errs = append(errs, fmt.Errorf("--run-dir %s is too long by %d bytes: the path of a unix socket has at most %d, and this one's would be %s",
			o.RunDir, len(socket)-maxSocketPath, maxSocketPath, socket))
	}
	if err := o.Buffer.check(); err != nil {
		errs = append(errs, err)
	}
	if o.WriteBackLimit < 0 {
		errs = append(errs, fmt.Errorf("--write-back-limit %d: use a number of bytes, or 0 to have all writes go through", o.WriteBackLimit))
	}
	return errors.Join(errs...)
}

// checkMachine looks for the rights and the programs that the platform needs.
func (o Options) checkMachine() error {
	if os.Geteuid() != 0 {
		return errors.New("the embedded platform makes network namespaces and containers: run it as root, for example by sudo")
	}
	var errs []error
	for _, name := range programs {
		if _, err := os.Stat(filepath.Join(o.BinDir, name)); err != nil {
			errs = append(errs, fmt.Errorf("%s is not in %s: `make build` puts it there; --bin-dir names another place", name, o.BinDir))
		}
	}
	for _, name := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed: on Debian and Ubuntu, `apt-get install %s`", name, name))
		}
	}
	for _, name := range []string{"bridge", "host-local"} {
		if _, err := os.Stat(filepath.Join(o.CNIPlugins, name)); err != nil {
			errs = append(errs, fmt.Errorf("the CNI plugin %s is not in %s: `apt-get install containernetworking-plugins`, or name its directory by --cni-plugins", name, o.CNIPlugins))
		}
	}
	return errors.Join(errs...)
}

func dial(ctx context.Context, a netip.AddrPort) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return err
	}
	return c.Close()
}

// resolvConf names the machine's resolvers (resolv.conf(5)). Daemons read it in their
// node's network namespace, and sandboxes have it mounted.
const resolvConf = "/etc/resolv.conf"

// resolverWarning says what the machine's resolvers keep from working, if anything.
func resolverWarning() string {
	conf, err := os.ReadFile(resolvConf)
	if err != nil || !loopbackOnly(string(conf)) {
		return "" // without the file there is nothing to say about it
	}
	return "host names do not resolve in nodes and sandboxes, so images, stores and what functions call are reached by address only: " +
		"all nameservers in " + resolvConf + " are loopback addresses, which each network namespace has to itself; " +
		"name a resolver that the network reaches (with systemd-resolved: ln -sf /run/systemd/resolve/resolv.conf " + resolvConf + ")"
}

// loopbackOnly tells whether a resolv.conf names resolvers, and all of them on loopback.
func loopbackOnly(conf string) bool {
	found := false
	for line := range strings.Lines(conf) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(fields[1])
		if err != nil {
			continue // resolvers pass over it too
		}
		if !a.Unmap().IsLoopback() {
			return false
		}
		found = true
	}
	return found
}
