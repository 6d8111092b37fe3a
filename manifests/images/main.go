// Command images builds the container images of a release, and the gateways' filters as an
// OCI artefact: out/images/*.tar are OCI layouts, which `ctr image import` takes, and
// out/images/digests.json has their digests, and image_*.cdx.json what is in them (CycloneDX).
// With a registry it pushes them. The same source, Go and base give the same digests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

const (
	// repository is the path of all images below the registry.
	repository = "headstart-mesh"
	shim       = "shim/cmd/containerd-shim-headstart-v2"
	installer  = "shim/cmd/headstart-installer"
	daemon     = "shim/cmd/headstart-node"
	filter     = "filters/wasm"
	filterName = "headstart-prefetch"

	// baseEnv is ko's, which built the images before.
	baseEnv = "KO_DEFAULTBASEIMAGE"

	system = "linux"

	// kubernetes: without what only the local platform needs. grpcnotrace: without a page of
	// gRPC's that nobody serves, whose templates keep the linker from dropping any method that
	// is not called: a third of the programs, and 4 MiB of what a daemon has in memory.
	tags = "kubernetes,grpcnotrace"
)

// programs are the main packages that get an image each, named as the package.
var programs = []string{"control-plane/cmd/headstart", "control-plane/cmd/headstart-controlplane", daemon, installer}

// build is what is asked for.
type build struct {
	out, registry, tag, version, base, roots, redis, sysroots string
	// archs are the architectures of each image. Several are in one index.
	archs []string
	// only are the images to build, all if empty.
	only []string
	dir  string // of the module
	// bases are the base images, by architecture: a tag can be another image each time.
	bases map[string]v1.Image
}

func main() {
	var b build
	var only, archs string
	flag.StringVar(&b.out, "out", "out/images", "directory of the archives")
	flag.StringVar(&b.registry, "registry", os.Getenv("IMAGE_REGISTRY"), "host and path prefix of a registry to push to (default $IMAGE_REGISTRY); empty: none")
	flag.StringVar(&b.tag, "tag", "dev", "the images' tag")
	flag.StringVar(&b.version, "version", "dev", "what the programs say of themselves")
	flag.StringVar(&archs, "arch", runtime.GOARCH, "comma-separated architectures of the images; several are in one index")
	flag.StringVar(
		&b.base, "base", os.Getenv(baseEnv), "base image (default $"+baseEnv+"); empty: nothing but the roots of TLS",
	)
	flag.StringVar(&b.roots, "roots", "/etc/ssl/certs/ca-certificates.crt", "certificates (PEM) that are in the images if there is no --base")
	flag.StringVar(&b.redis, "redis", "/usr/bin/redis-server", "redis-server for the nodes, which functions with state need to run ahead; "+
		"empty: the --base has one, or there is none")
	flag.StringVar(&b.sysroots, "sysroots", "", "directory with a system's files for each architecture, as sysroot.sh makes them, "+
		"from which the redis-server is; empty: this machine's, which has its own architecture alone")
	flag.StringVar(&only, "only", "", "comma-separated names of images to build; empty: all")
	flag.Parse()
	b.archs = strings.Split(archs, ",")
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
	b.bases = map[string]v1.Image{}
	digests := map[string]v1.Hash{}
	for _, p := range append(slices.Clone(programs), filter) {
		name := filepath.Base(p)
		if p == filter {
			name = filterName
		}
		if !b.wanted(name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "· image", name)
		i, err := b.make(ctx, p, name)
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

// make builds an image, or an index of images, one for each architecture.
func (b *build) make(ctx context.Context, pkg, name string) (mutate.Appendable, error) {
	if pkg == filter {
		return b.filter(ctx, name)
	}
	var all []mutate.IndexAddendum
	for _, arch := range b.archs {
		platform := v1.Platform{OS: system, Architecture: arch}
		i, err := b.program(ctx, platform, pkg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", arch, err)
		}
		all = append(all, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	if len(all) == 1 {
		return all[0].Add, nil
	}
	return together(all), nil
}

// together is an index of images for several architectures.
func together(all []mutate.IndexAddendum) v1.ImageIndex {
	return mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), all...)
}

// baseImage is the one that was asked for, or our own.
func (b *build) baseImage(ctx context.Context, platform v1.Platform) (v1.Image, error) {
	if b.base != "" {
		return pull(ctx, b.base, platform)
	}
	roots, err := os.ReadFile(b.roots)
	if err != nil {
		return nil, fmt.Errorf("%w; name the file with the roots of TLS by --roots", err)
	}
	return ownBase(roots, platform)
}

// program builds a program's image.
func (b *build) program(ctx context.Context, platform v1.Platform, pkg string) (v1.Image, error) {
	base := b.bases[platform.Architecture]
	if base == nil {
		var err error
		if base, err = b.baseImage(ctx, platform); err != nil {
			return nil, fmt.Errorf("base image: %w", err)
		}
		b.bases[platform.Architecture] = base
	}
	var data []artifact.File
	var parts []cdx.Component
	if b.base != "" {
		parts = append(parts, cdx.Component{BOMRef: b.base, Type: cdx.ComponentTypeContainer, Name: b.base})
	}
	if pkg == installer {
		content, err := artifact.Program(ctx, b.dir, shim, b.version, platform.OS, platform.Architecture)
		if err != nil {
			return nil, err
		}
		modules, err := artifact.Modules(content)
		if err != nil {
			return nil, fmt.Errorf("what is in the shim: %w", err)
		}
		parts = append(parts, modules...)
		data = append(data, artifact.File{Name: filepath.Base(shim), Content: content, Mode: 0o755})
	}
	content, err := artifact.Program(ctx, b.dir, pkg, b.version, platform.OS, platform.Architecture, "-tags="+tags)
	if err != nil {
		return nil, err
	}
	modules, err := artifact.Modules(content)
	if err != nil {
		return nil, fmt.Errorf("what is in it: %w", err)
	}
	parts = append(parts, modules...)
	if pkg == daemon && b.redis != "" {
		root := "/"
		if b.sysroots != "" {
			root = filepath.Join(b.sysroots, platform.Architecture)
		}
		files, err := linked(root, b.redis, platform.Architecture)
		if err != nil {
			return nil, fmt.Errorf("redis-server: %w; name it by --redis and --sysroots, or none by --redis=", err)
		}
		owners, err := packages(root, platform.Architecture, files)
		if err != nil {
			return nil, fmt.Errorf("packages: %w", err)
		}
		parts = append(parts, owners...)
		if base, err = with(base, files...); err != nil {
			return nil, err
		}
	}
	name := filepath.Base(pkg)
	i, err := program(base, name, content, data...)
	if err != nil {
		return nil, err
	}
	return i, b.contents(i, name, platform.OS+"_"+platform.Architecture, parts)
}

// contents writes down what an image is made of.
func (b *build) contents(i v1.Image, name, platform string, parts []cdx.Component) error {
	digest, err := i.Digest()
	if err != nil {
		return err
	}
	text, err := artifact.Contents(artifact.Part(cdx.ComponentTypeContainer, name, b.version,
		"pkg:oci/"+name+"@"+artifact.Escape(digest.String())), parts)
	if err != nil {
		return fmt.Errorf("what is in %s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(b.out, artifact.ImageContents(name, b.version, platform)), text, 0o644)
}

// filter makes the artefact that Istio's agent pulls: an OCI image whose one layer has the
// file plugin.wasm. It has no base.
func (b *build) filter(ctx context.Context, name string) (v1.Image, error) {
	env := []string{"GOOS=wasip1", "GOARCH=wasm"}
	code, err := artifact.Compile(ctx, b.dir, filter, env, "-ldflags", "-s -w", "-buildmode=c-shared")
	if err != nil {
		return nil, err
	}
	parts, err := artifact.ModulesOf(ctx, b.dir, filter, env)
	if err != nil {
		return nil, err
	}
	i, err := image(v1.Platform{OS: "wasi", Architecture: "wasm"}, v1.Config{}, artifact.File{Name: "plugin.wasm", Content: code, Mode: 0o644})
	if err != nil {
		return nil, err
	}
	return i, b.contents(i, name, "wasm", parts)
}

// finish archives an image, and pushes it if there is a registry.
func (b *build) finish(ctx context.Context, i mutate.Appendable, name string) (v1.Hash, error) {
	ref := repository + "/" + name + ":" + b.tag
	if err := artifact.Save(i, filepath.Join(b.out, name+".tar"), ref); err != nil {
		return v1.Hash{}, err
	}
	if b.registry != "" {
		ref = strings.TrimSuffix(b.registry, "/") + "/" + ref
		if err := artifact.Push(ctx, ref, i); err != nil {
			return v1.Hash{}, fmt.Errorf("pushing %s: %w", ref, err)
		}
	}
	return i.Digest()
}
