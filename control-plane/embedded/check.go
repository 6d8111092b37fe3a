package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// pollInterval is how often a starting process is asked whether it serves.
const pollInterval = 20 * time.Millisecond

// programs are what Headstart's build puts into BinDir.
var programs = []string{controlPlaneName, "headstart-node", "containerd-shim-headstart-v2", "envoy", "prefetch.wasm"}

// check says, before anything starts, what is missing and how to get it.
func (o Options) check() error {
	if os.Geteuid() != 0 {
		return errors.New("the embedded platform makes network namespaces and containers: run it as root, for example by sudo")
	}
	if len(o.Nodes) == 0 {
		return errors.New("--nodes: at least one node is needed")
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

// poll asks until the answer is yes or ctx ends.
func poll(ask func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		tick := time.NewTicker(pollInterval)
		defer tick.Stop()
		for {
			err := ask(ctx)
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-tick.C:
			}
		}
	}
}

func dial(ctx context.Context, a netip.AddrPort) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return err
	}
	return c.Close()
}
