// Package cloud is what lies beyond the test cluster's access line: an S3 server in a
// network namespace of its own, reached over an emulated link.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/linkemu"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/nsthread"
)

const (
	namespace = "hs-cloud"
	device    = "hs-wan0"
	// here is the machine's own network namespace, in which the cluster's bridge is.
	here = "/proc/self/ns/net"
)

var (
	// near and far are the link's two ends, outside all of the cluster's ranges.
	near = netip.MustParsePrefix("10.98.0.1/30")
	far  = netip.MustParsePrefix("10.98.0.2/30")
	// Host is this machine's own address, which the cluster reaches.
	Host = near.Addr()
	// Address is the S3 server's.
	Address = netip.AddrPortFrom(far.Addr(), 7070)
)

// Config says what the cloud is like.
type Config struct {
	// BinDir has linkemu and versitygw. WorkDir gets the objects and the log.
	BinDir, WorkDir string
	// Delay is one way; Rate in bit/s, 0 for no limit.
	Delay time.Duration
	Rate  int64
	// Secret is the S3 server's; zero: a new one.
	Secret testbed.Secret
}

// Cloud is a running one.
type Cloud struct {
	S3 *testbed.S3

	config Config
	link   *process.Group // nil: taken
}

// Open starts link and server. On error nothing is left. That this machine forwards between
// cluster and cloud is the cluster's doing.
func Open(ctx context.Context, c Config) (_ *Cloud, err error) {
	if err := Sweep(); err != nil { // what one that was killed left
		return nil, err
	}
	cl := &Cloud{config: c, link: process.New(func(process.Exit) {})}
	defer func() {
		if err != nil {
			err = errors.Join(err, cl.Close(ctx))
		}
	}()
	if err := os.MkdirAll(c.WorkDir, 0o700); err != nil {
		return nil, err
	}
	if err := nsthread.Run("", func() error { _, err := netns.NewNamed(namespace); return err }); err != nil {
		return nil, fmt.Errorf("making the cloud's network namespace: %w", err)
	}
	path := namespacePath()
	if err := cl.link.Start(ctx, testbed.Link(c.BinDir, linkemu.Config{
		A:     linkemu.End{Namespace: here, Device: device, Address: near.String()},
		B:     linkemu.End{Namespace: path, Device: "wan0", Address: far.String()},
		Delay: c.Delay, Rate: c.Rate})); err != nil {
		return nil, fmt.Errorf("emulating the link to the cloud: %w", err)
	}
	if err := nsthread.Run(path, answersGoBack); err != nil {
		return nil, fmt.Errorf("the cloud's way to the cluster: %w", err)
	}
	if c.Secret == (testbed.Secret{}) {
		c.Secret = testbed.NewSecret()
	}
	cl.S3, err = testbed.StartS3(ctx, testbed.S3Config{BinDir: c.BinDir, DataDir: filepath.Join(c.WorkDir, "objects"),
		LogFile: filepath.Join(c.WorkDir, "s3.log"), Namespace: path, Address: Address, Secret: c.Secret})
	return cl, err
}

// Take uses the cloud that runs already, if there is one that takes the secret. Its Close
// leaves it running.
func Take(ctx context.Context, secret testbed.Secret) (*Cloud, error) {
	taken := testbed.TakeS3(testbed.S3Config{Namespace: namespacePath(), Address: Address, Secret: secret})
	if err := taken.Usable(ctx); err != nil {
		taken.Close(ctx)
		return nil, err
	}
	return &Cloud{S3: taken}, nil
}

func namespacePath() string { return filepath.Join("/run/netns", namespace) }

// answersGoBack runs inside the cloud's namespace.
func answersGoBack() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	wan, err := netlink.LinkByName("wan0")
	if err != nil {
		return err
	}
	all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: wan.Attrs().Index, Dst: all, Gw: near.Addr().AsSlice()})
}

// Close ends everything and removes the objects.
func (c *Cloud) Close(ctx context.Context) error {
	if c.S3 != nil {
		c.S3.Close(ctx)
	}
	if c.link == nil { // somebody else's
		return nil
	}
	c.link.Stop(ctx)
	return errors.Join(Sweep(), os.RemoveAll(filepath.Join(c.config.WorkDir, "objects")))
}

// Sweep removes what a cloud that was killed left on this machine. With nothing left it does
// nothing.
func Sweep() error {
	if err := netns.DeleteNamed(namespace); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the cloud's network namespace: %w", err)
	}
	return nil
}
