//go:build integration || cluster

package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageLayout returns an OCI image layout as a tar: one layer with one program.
func imageLayout(t *testing.T, name, program string) io.Reader {
	t.Helper()
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	layer := archive{t: t}
	layer.add(filepath.Base(program), 0o755, binary)

	var layout archive
	layout.t = t
	platform := ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}
	rootfs := ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer.close())}}
	config := layout.blob(ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: platform, RootFS: rootfs,
		Config: ocispec.ImageConfig{Entrypoint: []string{"/" + filepath.Base(program)}, Env: []string{"FROM=image"}},
	})
	manifest := layout.blob(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config,
		Layers: []ocispec.Descriptor{layout.bytes(ocispec.MediaTypeImageLayer, layer.close())},
	})
	manifest.Platform = &platform
	manifest.Annotations = map[string]string{"io.containerd.image.name": name}
	layout.add(ocispec.ImageIndexFile, 0o644, layout.json(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{manifest},
	}))
	layout.add(ocispec.ImageLayoutFile, 0o644, layout.json(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}))
	return bytes.NewReader(layout.close())
}

// archive is a tar in the making.
type archive struct {
	t      *testing.T
	buffer bytes.Buffer
	writer *tar.Writer
}

func (a *archive) add(name string, mode int64, content []byte) {
	if a.writer == nil {
		a.writer = tar.NewWriter(&a.buffer)
	}
	if err := a.writer.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		a.t.Fatal(err)
	}
	if _, err := a.writer.Write(content); err != nil {
		a.t.Fatal(err)
	}
}

// bytes adds a blob under its digest.
func (a *archive) bytes(mediaType string, content []byte) ocispec.Descriptor {
	d := digest.FromBytes(content)
	a.add(filepath.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded()), 0o644, content)
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(content))}
}

func (a *archive) blob(mediaType string, content any) ocispec.Descriptor {
	return a.bytes(mediaType, a.json(content))
}

func (a *archive) json(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		a.t.Fatal(err)
	}
	return b
}

func (a *archive) close() []byte {
	if err := a.writer.Close(); err != nil {
		a.t.Fatal(err)
	}
	return a.buffer.Bytes()
}
