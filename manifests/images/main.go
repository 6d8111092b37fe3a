// Command images builds the container images of a release with ko, and the gateways'
// filter as an OCI artefact: out/images/*.tar are OCI layouts, which `ctr image import`
// takes, and out/images/digests.json has their digests. With a registry it pushes them.
// The same source, Go and base give the same digests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// ko and crane are what builds and what pushes; crane's version is the one ko uses.
	ko    = "github.com/google/ko@v0.19.1"
	crane = "github.com/google/go-containerregistry/cmd/crane@v0.21.7"

	module = "github.com/headstart-mesh/headstart"
	// repository is the path of all images below the registry.
	repository = "headstart-mesh"
	shim       = "shim/cmd/containerd-shim-headstart-v2"
	installer  = "shim/cmd/headstart-installer"
	node       = "shim/cmd/headstart-node"
	filter     = "filters/wasm"
	filterName = "headstart-prefetch"
	// routeFilterName is the same in the node's image: its daemon hands it to the gateways.
	routeFilterName = "route.wasm"
	// data is where programs look for what else is in their image: ko sets KO_DATA_PATH to it.
	data = "var/run/ko/"
)

// programs are the main packages that get an image each, named as the package.
var programs = []string{"control-plane/cmd/headstart", "control-plane/cmd/headstart-controlplane", node, installer}

// build is what is asked for.
type build struct {
	out, registry, tag, version, arch, base, roots string
	// only are the images to build, all if empty.
	only []string
	dir  string // of the module
	// ownBase: base is served by this process.
	ownBase bool
}

func main() {
	var b build
	var only string
	flag.StringVar(&b.out, "out", "out/images", "directory of the archives")
	flag.StringVar(&b.registry, "registry", os.Getenv("IMAGE_REGISTRY"), "host and path prefix of a registry to push to (default $IMAGE_REGISTRY); empty: none")
	flag.StringVar(&b.tag, "tag", "dev", "the images' tag")
	flag.StringVar(&b.version, "version", "dev", "what the programs say of themselves")
	flag.StringVar(&b.arch, "arch", runtime.GOARCH, "architecture of the images' programs; give each a --tag of its own")
	flag.StringVar(&b.base, "base", os.Getenv("KO_DEFAULTBASEIMAGE"), "base image (default $KO_DEFAULTBASEIMAGE); empty: nothing but the roots of TLS")
	flag.StringVar(&b.roots, "roots", "/etc/ssl/certs/ca-certificates.crt", "certificates (PEM) that are in the images if there is no --base")
	flag.StringVar(&only, "only", "", "comma-separated names of images to build; empty: all")
	flag.Parse()
	if only != "" {
		b.only = strings.Split(only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := b.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func (b *build) wanted(name string) bool { return len(b.only) == 0 || slices.Contains(b.only, name) }

func (b *build) run(ctx context.Context) (err error) {
	if b.dir == "" {
		b.dir = "."
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	digests := map[string]digest.Digest{}
	if b.base == "" {
		base, closeBase, failed := serveBase(b.roots, v1.Platform{OS: "linux", Architecture: b.arch})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, closeBase()) }()
		b.base, b.ownBase = base, true
	}
	for _, p := range programs {
		name := filepath.Base(p)
		if !b.wanted(name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "· image", name)
		if digests[name], err = b.program(ctx, p); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
	}
	if b.wanted(filterName) {
		fmt.Fprintln(os.Stderr, "· image", filterName)
		if digests[filterName], err = b.filter(ctx); err != nil {
			return fmt.Errorf("image %s: %w", filterName, err)
		}
	}
	text, err := json.MarshalIndent(digests, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(b.out, "digests.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(b.out, "values.yaml"), b.values(digests), 0o644))
}

// values are the chart's for these images. Without a registry they are known to the nodes
// by their tag, to which an import gives them.
func (b *build) values(digests map[string]digest.Digest) []byte {
	var s strings.Builder
	fmt.Fprintf(&s, "image:\n  registry: %q\n  tag: %q\n", b.registry, b.tag)
	for _, name := range []string{"controlplane", "node", "installer", "prefetch"} {
		if d, ok := digests["headstart-"+name]; ok && b.registry != "" {
			fmt.Fprintf(&s, "  %s: {digest: %q}\n", name, d)
		}
	}
	return []byte(s.String())
}

// program builds one image with ko, and pushes it if there is a registry.
func (b *build) program(ctx context.Context, pkg string) (digest.Digest, error) {
	file, content := "", []byte(nil)
	var err error
	switch pkg {
	case installer:
		file = data + filepath.Base(shim)
		content, err = b.shim(ctx)
	case node:
		file = data + routeFilterName
		content, err = b.wasm(ctx, filter)
	}
	if err != nil {
		return "", err
	}
	layout, err := os.MkdirTemp("", "headstart-image")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(layout)
	args := []string{"run", ko, "build", "--base-import-paths", "--sbom=none", "--push=false", "--oci-layout-path", layout, "--tags", b.tag, "--platform", "linux/" + b.arch}
	cmd := b.command(ctx, "go", append(args, module+"/"+pkg)...)
	cmd.Env = append(cmd.Environ(), "KO_DOCKER_REPO="+repository, "KO_DEFAULTBASEIMAGE="+b.base, "KO_CONFIG_PATH="+filepath.Join("manifests", "images"), "VERSION="+b.version)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("ko: %w", err)
	}
	if err := amend(layout, b.ownBase, file, content); err != nil {
		return "", fmt.Errorf("completing ko's image: %w", err)
	}
	return b.finish(ctx, layout, filepath.Base(pkg))
}

// finish archives a layout, and pushes it.
func (b *build) finish(ctx context.Context, layout, name string) (digest.Digest, error) {
	d, err := archive(layout, filepath.Join(b.out, name+".tar"), repository+"/"+name+":"+b.tag)
	if err != nil || b.registry == "" {
		return d, err
	}
	ref := strings.TrimSuffix(b.registry, "/") + "/" + repository + "/" + name + ":" + b.tag
	cmd := b.command(ctx, "go", "run", crane, "push", layout, ref)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("pushing %s: %w", ref, err)
	}
	return d, nil
}

// shim builds the shim that the installer's image has.
func (b *build) shim(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "headstart-shim")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := b.command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", b.ldflags(), "-o", dir+"/", "./"+shim)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0", "GOARCH="+b.arch)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building the shim: %w", err)
	}
	return os.ReadFile(filepath.Join(dir, filepath.Base(shim)))
}

// filter makes the artefact that Istio's agent pulls: an OCI image whose one layer has the
// file plugin.wasm.
func (b *build) filter(ctx context.Context) (digest.Digest, error) {
	code, err := b.wasm(ctx, filter)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "headstart-filter")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	layout := filepath.Join(dir, "layout")
	if err := wasmLayout(code, layout); err != nil {
		return "", err
	}
	return b.finish(ctx, layout, filterName)
}

// wasm builds a filter's module.
func (b *build) wasm(ctx context.Context, pkg string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "headstart-wasm")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plugin.wasm")
	cmd := b.command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-buildmode=c-shared", "-o", file, "./"+pkg)
	cmd.Env = append(cmd.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building the filter %s: %w", pkg, err)
	}
	return os.ReadFile(file)
}

func (b *build) ldflags() string {
	return "-s -w -X " + module + "/shim/nodeapi.Version=" + b.version
}

// command runs in the module's directory. What a program says goes to standard error.
func (b *build) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = b.dir
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	// Go's look at the working copy fails when it belongs to another user.
	cmd.Env = append(cmd.Environ(), "GOFLAGS=-buildvcs=false")
	return cmd
}
