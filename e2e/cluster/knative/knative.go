// Package knative brings Knative Serving to the test cluster: images of its programs and
// its own manifests, made fit for a machine without a registry.
package knative

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/headstart-mesh/headstart/e2e/cluster/modcache"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// Namespace is Knative's own.
const Namespace = "knative-serving"

// programs are Knative Serving's, each an image of its own.
var programs = []string{"activator", "autoscaler", "controller", "queue", "webhook"}

// References name the images that Knative Serving needs.
func References() []string {
	refs := make([]string, len(programs))
	for i, p := range programs {
		refs[i] = ref(p)
	}
	return refs
}

func ref(program string) string { return "local.test/knative-" + program + ":0.42.2" }

// Images writes the images of the programs in bin below dir, as archives to import.
func Images(bin, dir string) ([]string, error) {
	var archives []string
	for _, p := range programs {
		archive := filepath.Join(dir, "knative-"+p+".tar")
		f, err := os.Create(archive)
		if err != nil {
			return nil, err
		}
		err = ociimage.Build(f, ociimage.Image{Ref: ref(p), Entrypoint: []string{"/ko-app/" + p},
			Files: map[string]ociimage.File{"/ko-app/" + p: {Source: filepath.Join(bin, p), Mode: 0o755}}})
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, fmt.Errorf("image of Knative's %s: %w", p, err)
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// Kubectl runs kubectl with input as its standard input.
type Kubectl func(ctx context.Context, input io.Reader, args ...string) error

// establishTimeout bounds what the API server takes for new kinds of objects: seconds.
const establishTimeout = time.Minute

// Install applies the manifests of the modules that toolsDir (a Go module) pins, and
// waits until Knative takes Services.
func Install(ctx context.Context, kubectl Kubectl, toolsDir string) error {
	modules, err := modcache.Dirs(ctx, toolsDir, "knative.dev/serving", "knative.dev/networking", "knative.dev/caching")
	if err != nil {
		return err
	}
	serving, networking, caching := modules["knative.dev/serving"], modules["knative.dev/networking"], modules["knative.dev/caching"]
	core := filepath.Join(serving, "config/core")
	for _, step := range []struct {
		patterns []string
		then     []string
	}{
		{[]string{core + "/300-resources/*.yaml", networking + "/config/ingress.yaml", networking + "/config/serverlessservice.yaml",
			networking + "/config/certificate.yaml", networking + "/config/domain-claim.yaml", caching + "/config/image.yaml"},
			[]string{"wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"}},
		{[]string{core + "/100-namespace.yaml", core + "/200-serviceaccount.yaml", core + "/200-roles/*.yaml"}, nil},
		{[]string{core + "/configmaps/*.yaml", networking + "/config/config-network.yaml"}, nil},
	} {
		if err := apply(ctx, kubectl, step.patterns); err != nil {
			return err
		}
		if step.then != nil {
			// kubectl fails where an object has no status yet.
			if err := testbed.Poll(ctx, establishTimeout, func(ctx context.Context) error { return kubectl(ctx, nil, step.then...) }); err != nil {
				return err
			}
		}
	}
	for name, data := range settings {
		patch, err := json.Marshal(map[string]any{"data": data})
		if err != nil {
			return err
		}
		if err := kubectl(ctx, nil, "-n", Namespace, "patch", "configmap", name, "--type", "merge", "-p", string(patch)); err != nil {
			return err
		}
	}
	if err := apply(ctx, kubectl, []string{core + "/deployments/activator.yaml", core + "/deployments/autoscaler.yaml", core + "/deployments/controller.yaml",
		core + "/deployments/webhook.yaml", core + "/webhooks/*.yaml"}); err != nil {
		return err
	}
	return kubectl(ctx, nil, "-n", Namespace, "wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s")
}

// Domain ends the names of Knative Services: NAME.example.com.
const Domain = "example.com"

// settings make Knative quick to scale to zero, content with images that only the nodes
// have, and willing to take a runtime class.
var settings = map[string]map[string]string{
	"config-domain":     {Domain: ""},
	"config-network":    {"domain-template": "{{.Name}}.{{.Domain}}"},
	"config-deployment": {"registries-skipping-tag-resolving": "local.test,headstart.local,dev.local"},
	"config-autoscaler": {"scale-to-zero-grace-period": "6s", "scale-to-zero-pod-retention-period": "0s", "stable-window": "6s"},
	"config-features":   {"kubernetes.podspec-runtimeclassname": "enabled", "kubernetes.podspec-nodeselector": "enabled"},
}

var (
	koImage = regexp.MustCompile(`ko://knative.dev/serving/cmd/([a-z]+)`)
	// cpuRequest asks for more than three nodes on one small machine have. The limits stay.
	cpuRequest = regexp.MustCompile(`(?m)^( *requests:\n *cpu:) "?[0-9]+m?"?$`)
)

func apply(ctx context.Context, kubectl Kubectl, patterns []string) error {
	var all bytes.Buffer
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("knative's modules have no %s", filepath.Base(pattern))
		}
		slices.Sort(files)
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			fmt.Fprintf(&all, "---\n%s\n", fit(b))
		}
	}
	return kubectl(ctx, &all, "apply", "-f", "-")
}

func fit(manifest []byte) []byte {
	manifest = koImage.ReplaceAllFunc(manifest, func(m []byte) []byte {
		return []byte(ref(string(koImage.FindSubmatch(m)[1])))
	})
	return cpuRequest.ReplaceAll(manifest, []byte("$1 20m"))
}
