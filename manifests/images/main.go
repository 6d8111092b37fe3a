// Command images builds the container images of a release, and the gateways' filters as an
// OCI artefact: out/images/*.tar are OCI layouts, which `ctr image import` takes, and
// out/images/digests.json has their digests. With a registry it pushes them. The same source,
// Go and base give the same digests.
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

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	module = "github.com/headstart-mesh/headstart"
	// repository is the path of all images below the registry.
	repository = "headstart-mesh"
	shim       = "shim/cmd/containerd-shim-headstart-v2"
	installer  = "shim/cmd/headstart-installer"
	daemon     = "shim/cmd/headstart-node"
	filter     = "filters/wasm"
	filterName = "headstart-prefetch"

	// baseEnv is ko's, which built the images before.
	baseEnv = "KO_DEFAULTBASEIMAGE"

	// Nothing of the working copy goes into a program, so that digests can be reproduced.
	// kubernetes: without what only the local platform needs. grpcnotrace: without a page of
	// gRPC's that nobody serves, whose templates keep the linker from dropping any method that
	// is not called: a third of the programs, and 4 MiB of what a daemon has in memory.
	tags = "kubernetes,grpcnotrace"
)

// programs are the main packages that get an image each, named as the package.
var programs = []string{"control-plane/cmd/headstart", "control-plane/cmd/headstart-controlplane", daemon, installer}

// build is what is asked for.
type build struct {
	out, registry, tag, version, arch, base, roots, redis string
	// only are the images to build, all if empty.
	only []string
	dir  string // of the module
}

func main() {
	var b build
	var only string
	flag.StringVar(&b.out, "out", "out/images", "directory of the archives")
	flag.StringVar(&b.registry, "registry", os.Getenv("IMAGE_REGISTRY"), "host and path prefix of a registry to push to (default $IMAGE_REGISTRY); empty: none")
	flag.StringVar(&b.tag, "tag", "dev", "the images' tag")
	flag.StringVar(&b.version, "version", "dev", "what the programs say of themselves")
	flag.StringVar(&b.arch, "arch", runtime.GOARCH, "architecture of the images' programs; give each a --tag of its own")
	flag.StringVar(
		&b.base, "base", os.Getenv(baseEnv), "base image (default $"+baseEnv+"); empty: nothing but the roots of TLS",
	)
	flag.StringVar(&b.roots, "roots", "/etc/ssl/certs/ca-certificates.crt", "certificates (PEM) that are in the images if there is no --base")
	flag.StringVar(&b.redis, "redis", "/usr/bin/redis-server", "redis-server for the nodes, of --arch, which functions with state need to run ahead; "+
		"empty: the --base has one, or there is none")
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
	digests := map[string]v1.Hash{}
	base, err := b.baseImage(ctx)
	if err != nil {
		return fmt.Errorf("base image: %w", err)
	}
	for _, p := range append(slices.Clone(programs), filter) {
		name, builder := filepath.Base(p), b.program
		if p == filter {
			name, builder = filterName, b.filter
		}
		if !b.wanted(name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "· image", name)
		i, err := builder(ctx, base, p)
		if err != nil {
			return fmt.Errorf("image %s: %w", name, err)
		}
		if digests[name], err = b.finish(ctx, i, name); err != nil {
			return fmt.Errorf("image %s: %w", name, err)
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
func (b *build) values(digests map[string]v1.Hash) []byte {
	var s strings.Builder
	fmt.Fprintf(&s, "image:\n  registry: %q\n  tag: %q\n", b.registry, b.tag)
	for _, name := range []string{"controlplane", "node", "installer", "prefetch"} {
		if d, ok := digests["headstart-"+name]; ok && b.registry != "" {
			fmt.Fprintf(&s, "  %s: {digest: %q}\n", name, d)
		}
	}
	return []byte(s.String())
}

func (b *build) platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: b.arch} }

// baseImage is the one that was asked for, or our own.
func (b *build) baseImage(ctx context.Context) (v1.Image, error) {
	if b.base != "" {
		return pull(ctx, b.base, b.platform())
	}
	roots, err := os.ReadFile(b.roots)
	if err != nil {
		return nil, fmt.Errorf("%w; name the file with the roots of TLS by --roots", err)
	}
	return ownBase(roots, b.platform())
}

// program builds a program's image.
func (b *build) program(ctx context.Context, base v1.Image, pkg string) (v1.Image, error) {
	var data []file
	if pkg == installer {
		content, err := b.native(ctx, shim)
		if err != nil {
			return nil, err
		}
		data = append(data, file{filepath.Base(shim), content, 0o755})
	}
	content, err := b.native(ctx, pkg, "-tags="+tags)
	if err != nil {
		return nil, err
	}
	if pkg == daemon && b.redis != "" {
		files, err := linked(b.redis)
		if err != nil {
			return nil, fmt.Errorf("%w; name a redis-server by --redis, or none", err)
		}
		if base, err = with(base, files...); err != nil {
			return nil, err
		}
	}
	return program(base, filepath.Base(pkg), content, data...)
}

// filter makes the artefact that Istio's agent pulls: an OCI image whose one layer has the
// file plugin.wasm. It has no base.
func (b *build) filter(ctx context.Context, _ v1.Image, _ string) (v1.Image, error) {
	code, err := b.compile(ctx, filter, []string{"GOOS=wasip1", "GOARCH=wasm"}, "-ldflags", "-s -w", "-buildmode=c-shared")
	if err != nil {
		return nil, err
	}
	return image(v1.Platform{OS: "wasi", Architecture: "wasm"}, v1.Config{}, file{"plugin.wasm", code, 0o644})
}

// finish archives an image, and pushes it if there is a registry.
func (b *build) finish(ctx context.Context, i v1.Image, name string) (v1.Hash, error) {
	ref := repository + "/" + name + ":" + b.tag
	if err := save(i, filepath.Join(b.out, name+".tar"), ref); err != nil {
		return v1.Hash{}, err
	}
	if b.registry != "" {
		ref = strings.TrimSuffix(b.registry, "/") + "/" + ref
		if err := push(ctx, ref, i); err != nil {
			return v1.Hash{}, fmt.Errorf("pushing %s: %w", ref, err)
		}
	}
	return i.Digest()
}

// native compiles a program of the images.
func (b *build) native(ctx context.Context, pkg string, args ...string) ([]byte, error) {
	args = append(args, "-ldflags", "-s -w -X "+module+"/shim/nodeapi.Version="+b.version)
	return b.compile(ctx, pkg, []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + b.arch}, args...)
}

// compile builds a main package. What the compiler says goes to standard error.
func (b *build) compile(ctx context.Context, pkg string, env []string, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "headstart-build")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, filepath.Base(pkg))
	args = slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", "-o", out}, args, []string{"./" + pkg})
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, os.Stderr, os.Stderr
	cmd.Env = append(cmd.Environ(), env...)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w", pkg, err)
	}
	return os.ReadFile(out)
}
