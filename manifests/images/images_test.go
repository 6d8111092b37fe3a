package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"go.uber.org/goleak"
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
	config v1.Image
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
	blob := func(d v1.Descriptor, into any) []byte {
		content := all["blobs/sha256/"+d.Digest.Encoded()]
		if digest.NewDigestFromBytes(digest.SHA256, sum(content)) != d.Digest || int64(len(content)) != d.Size {
			t.Fatalf("blob %s is not what its digest says", d.Digest)
		}
		if into != nil {
			if err := json.Unmarshal(content, into); err != nil {
				t.Fatal(err)
			}
		}
		return content
	}
	var index v1.Index
	if err := json.Unmarshal(all["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%v: %s", err, all["index.json"])
	}
	m := index.Manifests[0]
	l := loaded{digest: m.Digest, name: m.Annotations[annotationImageName]}
	var manifest v1.Manifest
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

func TestTheFiltersImage(t *testing.T) {
	dir := t.TempDir()
	if err := wasmLayout([]byte("\x00asm"), filepath.Join(dir, "layout")); err != nil {
		t.Fatal(err)
	}
	d, err := archive(filepath.Join(dir, "layout"), filepath.Join(dir, "f.tar"), "headstart-mesh/headstart-prefetch:v1")
	if err != nil {
		t.Fatal(err)
	}
	i := load(t, filepath.Join(dir, "f.tar"))
	if i.digest != d || !strings.HasSuffix(i.name, "/headstart-mesh/headstart-prefetch:v1") {
		t.Errorf("got %s %s, want digest %s", i.name, i.digest, d)
	}
	if len(i.layers) != 1 || string(i.layers[0]["plugin.wasm"]) != "\x00asm" || len(i.layers[0]) != 1 {
		t.Errorf("the layers are %q", i.layers)
	}
}

func TestTheBaseCanBePulled(t *testing.T) {
	base, err := baseImage([]byte("roots"), v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(base)
	defer server.Close()
	for path, want := range map[string]int{
		"/v2/": 200, "/v2/base/manifests/" + base.manifest.Digest.String(): 200, "/v2/base/blobs/sha256:00": 404, "/": 404,
	} {
		answer, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
	}
	again, err := baseImage([]byte("roots"), v1.Platform{OS: "linux", Architecture: "arm64"})
	if err != nil || again.manifest.Digest != base.manifest.Digest {
		t.Errorf("the same roots make %s and %s, %v", base.manifest.Digest, again.manifest.Digest, err)
	}
}
