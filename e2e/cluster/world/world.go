// Package world is Headstart on a real cluster, as its users meet it: Kubernetes with three
// nodes, Istio by `istioctl install`, Headstart by its chart, an S3 server across an
// emulated link, and functions behind Istio's gateway. Tests, benchmark and demo share it.
package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/e2e/cluster/cloud"
	"github.com/headstart-mesh/headstart/e2e/cluster/mesh"
	"github.com/headstart-mesh/headstart/e2e/cluster/modcache"
)

const (
	// System is Headstart's namespace.
	System = "headstart-system"
	// Functions is where the functions are.
	Functions = "default"
	// StoreName is what the operator calls the S3 server, storeSecret its credentials.
	StoreName   = "footage"
	storeSecret = "footage-s3"
	// closeTimeout bounds the end of everything.
	closeTimeout = 2 * time.Minute
	// gatewayTimeout is for the start of a gateway.
	gatewayTimeout = time.Minute
	// LinkDelay is one way: an edge site behind an access line.
	LinkDelay = 20 * time.Millisecond
	// LinkRate is the line's, in bit/s.
	LinkRate = 250_000_000
)

// Config says where things are.
type Config struct {
	// Source is the repository's root.
	Source string
	// WorkDir gets archives and logs; only the logs are left after Close, in logs/.
	WorkDir string
	// Reuse takes a cluster and a cloud that run already, and leaves them running.
	Reuse    bool
	Progress func(string)
}

// World is a running one.
type World struct {
	*cluster.Cluster
	Cloud *cloud.Cloud

	config Config
}

// Open brings up cluster, cloud and mesh; Headstart is not installed yet. On error nothing
// is left.
func Open(ctx context.Context, c Config) (_ *World, err error) {
	if err := os.MkdirAll(c.WorkDir, 0o755); err != nil {
		return nil, err
	}
	w := &World{config: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.Cluster, err = cluster.Up(ctx, cluster.Config{Reuse: c.Reuse, Progress: c.Progress}); err != nil {
		return nil, err
	}
	c.Progress("S3 server across an emulated link")
	if w.Cloud, err = w.openCloud(ctx); err != nil {
		return nil, err
	}
	c.Progress("images of Istio and of the sample function")
	if err := w.importImages(ctx); err != nil {
		return nil, err
	}
	c.Progress("istioctl install")
	if err := w.installMesh(ctx); err != nil {
		return nil, err
	}
	return w, w.freshGateway(ctx)
}

// freshGateway starts a gateway again that may have met an installation that is gone: what it
// mounts went with it, as docs/operations/uninstall.md says.
func (w *World) freshGateway(ctx context.Context) error {
	if !w.config.Reuse || w.Tool(ctx, nil, "helm", "status", "headstart", "-n", System) == nil {
		return nil
	}
	const gateway = "deployment/istio-ingressgateway"
	if err := w.Tool(ctx, nil, "kubectl", "-n", "istio-system", "rollout", "restart", gateway); err != nil {
		return err
	}
	return w.Tool(ctx, nil, "kubectl", "-n", "istio-system", "rollout", "status", gateway, "--timeout", gatewayTimeout.String())
}

func (w *World) openCloud(ctx context.Context) (*cloud.Cloud, error) {
	c := cloud.Config{BinDir: w.Source("out/bin"), WorkDir: w.path("cloud"), Delay: LinkDelay, Rate: LinkRate}
	if w.config.Reuse {
		// The Headstart that is installed already has this secret, and goes on with it.
		if secret, err := w.storedSecret(ctx); err == nil {
			if running, err := cloud.Take(ctx, secret); err == nil {
				return running, nil
			}
			c.Secret = secret
		}
	}
	return cloud.Open(ctx, c)
}

// Close ends everything and waits for it.
func (w *World) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	var errs []error
	if w.Cluster != nil {
		w.config.Progress("logs are in " + w.path("logs"))
		errs = append(errs, w.keepLogs(), w.Down(ctx))
	}
	if w.Cloud != nil {
		errs = append(errs, w.Cloud.Close(ctx))
	}
	archives, err := filepath.Glob(w.path("images*"))
	errs = append(errs, err)
	for _, made := range append(archives, w.path("stores.yaml")) {
		errs = append(errs, os.RemoveAll(made))
	}
	return errors.Join(errs...)
}

func (w *World) path(name string) string { return filepath.Join(w.config.WorkDir, name) }

// Source is the path of a file of the repository.
func (w *World) Source(name string) string { return filepath.Join(w.config.Source, name) }

// ServerVersion is the API server's.
func (w *World) ServerVersion() (*version.Info, error) {
	out, err := w.Output(context.Background(), nil, "kubectl", "get", "--raw", "/version")
	if err != nil {
		return nil, err
	}
	var v version.Info
	return &v, json.Unmarshal([]byte(out), &v)
}

// IstioModules is a directory with the go.mod that the cluster's Istio is built with.
func (w *World) IstioModules() string { return filepath.Join(w.Bin(), "modules") }

func (w *World) importImages(ctx context.Context) error {
	dir := w.path("images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	const module = "istio.io/istio"
	dirs, err := modcache.Dirs(ctx, w.IstioModules(), module)
	if err != nil {
		return err
	}
	archives, err := mesh.Images(ctx, mesh.Sources{Bin: w.Bin(), Envoy: w.Source("out/bin/envoy"), IstioModule: dirs[module]}, dir)
	if err != nil {
		return err
	}
	fire, err := functionImage(w.Source("out/bin/fire"), dir)
	if err != nil {
		return err
	}
	for _, a := range append(archives, fire) {
		if err := w.ImportImage(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// installMesh does what docs/operations/istio.md says, with what a vanilla Envoy needs.
func (w *World) installMesh(ctx context.Context) error {
	return w.Tool(ctx, nil, "istioctl", "install", "--skip-confirmation", "-f", w.Source("e2e/cluster/mesh/vanilla.yaml"), "-f", w.Source("manifests/istio/install.yaml"))
}

// Tool runs one of the cluster's programs as an operator would, with input as its standard
// input. The error has what it said.
func (w *World) Tool(ctx context.Context, input io.Reader, name string, args ...string) error {
	_, err := w.Output(ctx, input, name, args...)
	return err
}

// Output is Tool and returns what the program printed.
func (w *World) Output(ctx context.Context, input io.Reader, name string, args ...string) (string, error) {
	path := filepath.Join(w.Bin(), name)
	if name == "headstart" {
		path = w.Source("out/bin/headstart")
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	cmd.Stdin = input
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err, said.String(), out.String())
	}
	return out.String(), nil
}

// Apply applies a manifest.
func (w *World) Apply(ctx context.Context, manifest string) error {
	return w.Tool(ctx, strings.NewReader(manifest), "kubectl", "apply", "-f", "-")
}

// Gateway is where Istio's gateway listens: its Service's address, which stays when pods come and go.
func (w *World) Gateway(ctx context.Context) (netip.AddrPort, error) {
	out, err := w.Output(ctx, nil, "kubectl", "-n", "istio-system", "get", "service", "istio-ingressgateway", "-o", "jsonpath={.spec.clusterIP}")
	if err != nil {
		return netip.AddrPort{}, err
	}
	ip, err := netip.ParseAddr(strings.TrimSpace(out))
	return netip.AddrPortFrom(ip, gatewayPort), err
}
