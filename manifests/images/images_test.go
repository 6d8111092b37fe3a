package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/opencontainers/go-digest"
	oci "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files reads a tar archive's regular files.
func files(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if all[h.Name], err = io.ReadAll(archive); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// loaded is an image as a container runtime sees it.
type loaded struct {
	digest digest.Digest
	name   string
	config oci.Image
	layers []map[string][]byte
}

// load reads an archive, and checks every digest in it.
func load(t *testing.T, file string) loaded {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := files(t, f)
	blob := func(d oci.Descriptor, into any) []byte {
		content := all["blobs/sha256/"+d.Digest.Encoded()]
		if digest.FromBytes(content) != d.Digest || int64(len(content)) != d.Size {
			t.Fatalf("blob %s is not what its digest says", d.Digest)
		}
		if into != nil {
			if err := json.Unmarshal(content, into); err != nil {
				t.Fatal(err)
			}
		}
		return content
	}
	var index oci.Index
	if err := json.Unmarshal(all["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%v: %s", err, all["index.json"])
	}
	m := index.Manifests[0]
	l := loaded{digest: m.Digest, name: m.Annotations[artifact.AnnotationImageName]}
	var manifest oci.Manifest
	blob(m, &manifest)
	blob(manifest.Config, &l.config)
	for _, layer := range manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(blob(layer, nil)))
		if err != nil {
			t.Fatal(err)
		}
		l.layers = append(l.layers, files(t, z))
	}
	return l
}

func TestAnArchiveHasAnImageByItsDigestAndName(t *testing.T) {
	made, err := image(v1.Platform{OS: "wasi", Architecture: "wasm"}, v1.Config{},
		artifact.File{Name: "plugin.wasm", Content: []byte("\x00asm"), Mode: 0o644})
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "f.tar")
	if err := artifact.Save(made, to, "headstart-mesh/headstart-prefetch:v1"); err != nil {
		t.Fatal(err)
	}
	i := load(t, to)
	if d, err := made.Digest(); err != nil || i.digest.String() != d.String() || i.name != "docker.io/headstart-mesh/headstart-prefetch:v1" {
		t.Errorf("got %s %s, want digest %s, %v", i.name, i.digest, d, err)
	}
	if len(i.layers) != 1 || string(i.layers[0]["plugin.wasm"]) != "\x00asm" || len(i.layers[0]) != 1 {
		t.Errorf("the layers are %q", i.layers)
	}
	first, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	if err := artifact.Save(made, to, "headstart-mesh/headstart-prefetch:v1"); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(to); err != nil || !bytes.Equal(first, again) {
		t.Errorf("a second archive differs, %v", err)
	}
}

// A base of somebody's own keeps what it has; an image that was pushed can be pulled.
func TestImagesGoToARegistryAndComeFromOne(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	arm := v1.Platform{OS: "linux", Architecture: "arm64"}
	var digests []v1.Hash
	for range 2 {
		base, err := ownBase([]byte("roots"), arm)
		if err != nil {
			t.Fatal(err)
		}
		ref := strings.TrimPrefix(server.URL, "http://") + "/a/base:v1"
		if err := artifact.Push(t.Context(), ref, base); err != nil {
			t.Fatal(err)
		}
		b := build{base: ref}
		if base, err = b.baseImage(t.Context(), arm); err != nil {
			t.Fatal(err)
		}
		i, err := program(base, "app", []byte("program"), artifact.File{Name: "more", Content: []byte("data"), Mode: 0o755})
		if err != nil {
			t.Fatal(err)
		}
		config, err := i.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		env := strings.Join(config.Config.Env, " ")
		if config.Config.User != user || config.Architecture != "arm64" || len(config.RootFS.DiffIDs) != 2 || env != "PATH="+searchPath+" KO_DATA_PATH=/var/run/ko" {
			t.Errorf("%+v", config)
		}
		d, err := i.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d)
	}
	if digests[0] != digests[1] {
		t.Errorf("the same files make %s and %s", digests[0], digests[1])
	}
}

// Images for several architectures are one index, under one digest, in an archive as in a registry.
func TestImagesForSeveralArchitecturesAreOne(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	var both []mutate.IndexAddendum
	for _, arch := range []string{"amd64", "arm64"} {
		platform := v1.Platform{OS: system, Architecture: arch}
		i, err := ownBase([]byte("roots"), platform)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	index := together(both)
	want, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	ref := strings.TrimPrefix(server.URL, "http://") + "/headstart-node:v1"
	if err := artifact.Push(t.Context(), ref, index); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		i, err := pull(t.Context(), ref, v1.Platform{OS: system, Architecture: arch})
		if err != nil {
			t.Fatal(err)
		}
		if config, err := i.ConfigFile(); err != nil || config.Architecture != arch {
			t.Errorf("for %s there is one for %s, %v", arch, config.Architecture, err)
		}
	}
	to := filepath.Join(t.TempDir(), "node.tar")
	if err := artifact.Save(index, to, "headstart-mesh/headstart-node:v1"); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list oci.Index
	err = json.Unmarshal(files(t, f)["index.json"], &list)
	if err != nil || len(list.Manifests) != 1 || list.Manifests[0].Digest.String() != want.String() {
		t.Errorf("the archive has %+v, %v, and not %s", list.Manifests, err, want)
	}
}
