package ociimage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// entry is a file or directory of an archive.
type entry struct {
	Mode    int64
	Content string
}

func unpack(t *testing.T, archive []byte) map[string]entry {
	t.Helper()
	entries := map[string]entry{}
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(time.Unix(0, 0)) || header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s is of %v by %d:%d", header.Name, header.ModTime, header.Uid, header.Gid)
		}
		entries[header.Name] = entry{header.Mode, string(content)}
	}
}

func testImage(t *testing.T) Image {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "binary")
	if err := os.WriteFile(binary, []byte("ELF"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Image{
		Ref:        "example.test/fire:v1",
		Files:      map[string]File{"/fire": {Source: binary, Mode: 0o755}, "/etc/app/config": {Source: binary, Mode: 0o644}},
		Entrypoint: []string{"/fire", "-v"},
		Env:        []string{"PORT=8080"},
	}
}

func build(t *testing.T, image Image) []byte {
	t.Helper()
	var archive bytes.Buffer
	if err := Build(&archive, image); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// blob returns what a descriptor describes, and checks that it does.
func blob(t *testing.T, layout map[string]entry, d v1.Descriptor) string {
	t.Helper()
	content := layout["blobs/sha256/"+d.Digest.Encoded()].Content
	if digest.FromString(content) != d.Digest || int64(len(content)) != d.Size {
		t.Errorf("blob %s of %d bytes is not as described", d.Digest, d.Size)
	}
	return content
}

func decode[T any](t *testing.T, content string) T {
	t.Helper()
	var value T
	if err := json.Unmarshal([]byte(content), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestImageHoldsWhatItWasGiven(t *testing.T) {
	layout := unpack(t, build(t, testImage(t)))
	if diff := cmp.Diff(v1.ImageLayout{Version: "1.0.0"}, decode[v1.ImageLayout](t, layout["oci-layout"].Content)); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
	index := decode[v1.Index](t, layout["index.json"].Content)
	if len(index.Manifests) != 1 {
		t.Fatalf("%d manifests", len(index.Manifests))
	}
	wantNames := map[string]string{
		"io.containerd.image.name":          "example.test/fire:v1",
		"org.opencontainers.image.ref.name": "v1",
	}
	if diff := cmp.Diff(wantNames, index.Manifests[0].Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}

	manifest := decode[v1.Manifest](t, blob(t, layout, index.Manifests[0]))
	config := decode[v1.Image](t, blob(t, layout, manifest.Config))
	wantConfig := v1.ImageConfig{
		User:       "65532:65532",
		Env:        []string{"PORT=8080"},
		Entrypoint: []string{"/fire", "-v"},
		WorkingDir: "/",
	}
	if diff := cmp.Diff(wantConfig, config.Config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, config.Platform); diff != "" {
		t.Errorf("platform (-want +got):\n%s", diff)
	}

	if len(manifest.Layers) != 1 {
		t.Fatalf("%d layers", len(manifest.Layers))
	}
	if diff := cmp.Diff([]digest.Digest{manifest.Layers[0].Digest}, config.RootFS.DiffIDs); diff != "" {
		t.Errorf("layers' digests (-want +got):\n%s", diff)
	}
	wantFiles := map[string]entry{
		"etc/":           {0o755, ""},
		"etc/app/":       {0o755, ""},
		"etc/app/config": {0o644, "ELF"},
		"fire":           {0o755, "ELF"},
	}
	if diff := cmp.Diff(wantFiles, unpack(t, []byte(blob(t, layout, manifest.Layers[0])))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestBuildRepeats(t *testing.T) {
	image := testImage(t)
	if !bytes.Equal(build(t, image), build(t, image)) {
		t.Error("the same input gives two images")
	}
}

func TestShortNamesGetTheirRegistry(t *testing.T) {
	image := testImage(t)
	image.Ref = "fire:v1"
	index := decode[v1.Index](t, unpack(t, build(t, image))["index.json"].Content)
	if got, want := index.Manifests[0].Annotations["io.containerd.image.name"], "docker.io/library/fire:v1"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

func TestBuildRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Image)
		want   string
	}{
		{"no reference", func(i *Image) { i.Ref = "" }, `image reference ""`},
		{"no tag", func(i *Image) { i.Ref = "example.test/fire" }, `image reference "example.test/fire" has no tag`},
		{"relative path", func(i *Image) { i.Files["fire"] = File{} }, `file "fire" of the image`},
		{"path upwards", func(i *Image) { i.Files["/../fire"] = File{} }, `file "/../fire" of the image`},
		{"the root", func(i *Image) { i.Files["/"] = File{} }, `file "/" of the image`},
		{"no such source", func(i *Image) { i.Files["/other"] = File{Source: "/nonexistent"} }, "adding file /other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			image := testImage(t)
			c.change(&image)
			err := Build(io.Discard, image)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestBuildReportsWriteErrors(t *testing.T) {
	if err := Build(fullDisk{}, testImage(t)); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
}
