// Package mesh brings Istio to the test cluster: images of istiod and of the proxy, made
// from what the Go module proxy and Envoy's own release have, and `istioctl install`.
//
// The proxy is Istio's pilot-agent around a vanilla Envoy, because Istio's own build of
// Envoy is nowhere to be had from source in reasonable time. Vanilla lacks Istio's
// extensions for telemetry and ALPN; vanilla.yaml switches those off.
package mesh

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

const (
	// hub and tag name the images; no registry has them, the nodes do.
	hub = "local.test/istio"
	tag = "1.31.0"
)

// Sources are the files that the images are made of.
type Sources struct {
	// Bin has pilot-discovery and pilot-agent.
	Bin string
	// Envoy is the vanilla Envoy's binary.
	Envoy string
	// IstioModule is the root of the module istio.io/istio, for the bootstrap template.
	IstioModule string
}

// iptablesNames are how istio-init and the agent call the one multi-call binary.
var iptablesNames = []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"}

// Images writes the images of istiod and of the proxy below dir, as archives to import.
func Images(ctx context.Context, s Sources, dir string) ([]string, error) {
	pilot := ociimage.Image{
		Ref:        hub + "/pilot:" + tag,
		Files:      map[string]ociimage.File{"/usr/local/bin/pilot-discovery": {Source: filepath.Join(s.Bin, "pilot-discovery"), Mode: 0o755}},
		Entrypoint: []string{"/usr/local/bin/pilot-discovery"},
	}
	proxy := ociimage.Image{
		Ref: hub + "/proxyv2:" + tag,
		Files: map[string]ociimage.File{
			"/usr/local/bin/pilot-agent": {Source: filepath.Join(s.Bin, "pilot-agent"), Mode: 0o755},
			"/usr/local/bin/envoy":       {Source: s.Envoy, Mode: 0o755},
			"/var/lib/istio/envoy/envoy_bootstrap_tmpl.json": {
				Source: filepath.Join(s.IstioModule, "tools/packaging/common/envoy_bootstrap.json"), Mode: 0o644},
		},
		Entrypoint: []string{"/usr/local/bin/pilot-agent"},
		Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	}
	if err := addIptables(ctx, proxy.Files); err != nil {
		return nil, err
	}
	if err := addLibraries(ctx, proxy.Files, s.Envoy); err != nil {
		return nil, err
	}
	var archives []string
	for name, image := range map[string]ociimage.Image{"pilot": pilot, "proxyv2": proxy} {
		archive := filepath.Join(dir, name+".tar")
		if err := write(archive, image); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

func write(archive string, image ociimage.Image) error {
	f, err := os.Create(archive)
	if err != nil {
		return fmt.Errorf("image %s: %w", image.Ref, err)
	}
	defer f.Close()
	if err := ociimage.Build(f, image); err != nil {
		return fmt.Errorf("image %s: %w", image.Ref, err)
	}
	return f.Close()
}

// addIptables puts the machine's own iptables, its extensions and their libraries into
// files: sidecars redirect their pods' traffic by it.
func addIptables(ctx context.Context, files map[string]ociimage.File) error {
	const multi, extensions = "/usr/sbin/xtables-nft-multi", "/usr/lib/x86_64-linux-gnu/xtables"
	if _, err := os.Stat(multi); err != nil {
		return fmt.Errorf("iptables of the proxy's image (Debian package iptables): %w", err)
	}
	for _, name := range iptablesNames {
		files["/usr/sbin/"+name] = ociimage.File{Source: multi, Mode: 0o755}
		// The agent asks for the variants by name, too.
		files["/usr/sbin/"+strings.Replace(name, "tables", "tables-nft", 1)] = ociimage.File{Source: multi, Mode: 0o755}
	}
	plugins, err := filepath.Glob(extensions + "/lib*.so")
	if err != nil {
		return err
	}
	for _, p := range plugins {
		files[p] = ociimage.File{Source: p, Mode: 0o755}
	}
	return addLibraries(ctx, files, append(plugins, multi)...)
}

// addLibraries puts the shared libraries that programs need into files.
func addLibraries(ctx context.Context, files map[string]ociimage.File, programs ...string) error {
	all, err := libraries(ctx, programs)
	if err != nil {
		return err
	}
	for _, l := range all {
		files[l] = ociimage.File{Source: l, Mode: 0o755}
	}
	return nil
}

// libraries returns the paths of the shared libraries that programs need, the dynamic
// linker among them.
func libraries(ctx context.Context, programs []string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "ldd", programs...).Output()
	if err != nil {
		return nil, fmt.Errorf("listing shared libraries: %w", err)
	}
	var paths []string
	for line := range strings.Lines(string(out)) {
		for field := range strings.FieldsSeq(line) {
			if strings.HasPrefix(field, "/") && !strings.HasSuffix(field, ":") {
				paths = append(paths, field)
			}
		}
	}
	return paths, nil
}
