package testbed

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/headstart-mesh/headstart/control-plane/embedded/containerd"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

// The images that ImportImage brings, each with the program of the same name.
const (
	Fire     = "headstart.local/fire:1"
	Witness  = "headstart.local/witness:1"
	Handoff  = "headstart.local/handoff:1"
	Workflow = "headstart.local/workflow:1"
	Reader   = "headstart.local/reader:1"
)

// Function is a function as it is deployed.
type Function struct {
	Name string
	// Image is one of the constants, or one that does not exist.
	Image string
	// Command is its program; empty: the image's own.
	Command []string
	// Annotations go to the service's metadata.
	Annotations map[string]string
	// Template are those of its pods.
	Template map[string]string
	// Node is the only node it may run on; empty: any.
	Node string
	// Env is added to what a function needs to fetch by itself.
	Env map[string]string
}

// The annotation's values for requests that name bucket, or keyspace, and key in headers.
const (
	Input      = "s3://{header.x-bucket}/{header.x-key}"
	RedisInput = "redis://{header.x-bucket}/{header.x-key}"
)

func (f Function) manifest(s *S3) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata:\n  name: %s\n", f.Name)
	annotations := func(indent string, all map[string]string) {
		if len(all) > 0 {
			b.WriteString(indent + "annotations:\n")
		}
		for k, v := range all {
			fmt.Fprintf(&b, "%s  %s: %q\n", indent, k, v)
		}
	}
	annotations("  ", f.Annotations)
	b.WriteString("spec:\n  template:\n")
	if len(f.Template) > 0 {
		b.WriteString("    metadata:\n")
		annotations("      ", f.Template)
	}
	b.WriteString("    spec:\n")
	if f.Node != "" {
		fmt.Fprintf(&b, "      nodeSelector: {kubernetes.io/hostname: %s}\n", f.Node)
	}
	fmt.Fprintf(&b, "      containers:\n      - image: %s\n", f.Image)
	if len(f.Command) > 0 {
		fmt.Fprintf(&b, "        command: [%s]\n", strings.Join(f.Command, ", "))
	}
	// For requests whose input is not brought: the function then fetches by itself.
	fmt.Fprintf(&b, "        env:\n        - {name: S3_ENDPOINT, value: %q}\n        - {name: S3_REGION, value: %q}\n", s.Endpoint, Region)
	fmt.Fprintf(&b, "        - {name: S3_ACCESS_KEY_ID, value: %q}\n        - {name: S3_SECRET_ACCESS_KEY, value: %q}\n", s.Secret.Access, s.Secret.Key)
	for k, v := range f.Env {
		fmt.Fprintf(&b, "        - {name: %s, value: %q}\n", k, v)
	}
	return b.String()
}

// ImportImage builds the image of a program in BinDir and brings it to the nodes.
func (b *Bed) ImportImage(ctx context.Context, ref string) error {
	program, _, _ := strings.Cut(path.Base(ref), ":")
	var archive bytes.Buffer
	err := ociimage.Build(&archive, ociimage.Image{Ref: ref, Entrypoint: []string{"/" + program},
		Files: map[string]ociimage.File{"/" + program: {Source: filepath.Join(b.c.BinDir, program), Mode: 0o755}}})
	if err != nil {
		return fmt.Errorf("building image %s: %w", ref, err)
	}
	return b.Import(ctx, archive.Bytes())
}

// Import brings an image, as ociimage builds it, to the nodes.
func (b *Bed) Import(ctx context.Context, archive []byte) error {
	for _, n := range b.Platform.Nodes() {
		socket := filepath.Join(b.RunDir(), n.Name, "containerd.sock")
		if _, err := containerd.Import(ctx, socket, bytes.NewReader(archive)); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}
