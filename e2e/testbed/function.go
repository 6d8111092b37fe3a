package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// Image is the sample function's.
const Image = "headstart.local/fire:1"

// Function is the sample function as it is deployed.
type Function struct {
	Name string
	// Annotations go to the service's metadata.
	Annotations map[string]string
	// Node is the only node it may run on; empty: any.
	Node string
	// Image, Command and Port replace the sample function's.
	Image   string
	Command []string
}

// Input is the annotation's value for requests that name bucket and key in headers.
const Input = "s3://{header.x-bucket}/{header.x-key}"

func (f Function) manifest(s *S3) string {
	var b strings.Builder
	image := f.Image
	if image == "" {
		image = Image
	}
	fmt.Fprintf(&b, "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata:\n  name: %s\n", f.Name)
	if len(f.Annotations) > 0 {
		b.WriteString("  annotations:\n")
		for k, v := range f.Annotations {
			fmt.Fprintf(&b, "    %s: %q\n", k, v)
		}
	}
	b.WriteString("spec:\n  template:\n    spec:\n")
	if f.Node != "" {
		fmt.Fprintf(&b, "      nodeSelector: {kubernetes.io/hostname: %s}\n", f.Node)
	}
	fmt.Fprintf(&b, "      containers:\n      - image: %s\n", image)
	if len(f.Command) > 0 {
		fmt.Fprintf(&b, "        command: [%s]\n", strings.Join(f.Command, ", "))
	}
	// For requests whose input is not brought: the function then fetches by itself.
	fmt.Fprintf(&b, "        env:\n        - {name: S3_ENDPOINT, value: %q}\n        - {name: S3_REGION, value: %q}\n", s.Endpoint, Region)
	fmt.Fprintf(&b, "        - {name: S3_ACCESS_KEY_ID, value: %q}\n        - {name: S3_SECRET_ACCESS_KEY, value: %q}\n", s.Secret.Access, s.Secret.Key)
	return b.String()
}

// ImportImage brings the sample function's image to the nodes.
func (b *Bed) ImportImage(ctx context.Context) error {
	archive := filepath.Join(b.c.WorkDir, "fire.tar")
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	err = ociimage.Build(f, ociimage.Image{Ref: Image, Entrypoint: []string{"/fire"},
		Files: map[string]ociimage.File{"/fire": {Source: filepath.Join(b.c.BinDir, "fire"), Mode: 0o755}}})
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("building the function's image: %w", err)
	}
	for _, n := range b.Platform.Nodes() {
		f, err := os.Open(archive)
		if err != nil {
			return err
		}
		_, err = containerd.Import(ctx, filepath.Join(b.RunDir(), n.Name, "containerd.sock"), f)
		_ = f.Close() // it was only read
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return os.Remove(archive)
}
