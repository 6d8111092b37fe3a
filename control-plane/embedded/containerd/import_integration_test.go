//go:build integration

package containerd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tarball is an archive of files, by their names.
func tarball(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// saved is an image of an architecture, as `docker save` writes it.
func saved(t *testing.T, architecture string, tags ...string) []byte {
	t.Helper()
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	layer := tarball(t, map[string][]byte{"hello": []byte("world")})
	config := encode(map[string]any{"os": "linux", "architecture": architecture, "config": map[string]any{},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}}})
	return tarball(t, map[string][]byte{"layer.tar": layer, "config.json": config,
		"manifest.json": encode([]map[string]any{{"Config": "config.json", "RepoTags": tags, "Layers": []string{"layer.tar"}}})})
}

// What `docker save` and `docker save | gzip` write comes under the name that a manifest's image has;
// what cannot be imported is called by what is wrong with it.
func TestImport(t *testing.T) {
	m := place(t)
	m.start(t)
	image := saved(t, runtime.GOARCH, "fn:1")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(image); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, archive := range map[string]io.Reader{"plain": bytes.NewReader(image), "gzip": &zipped} {
		names, err := Import(deadline(t), m.Socket, archive)
		if d := cmp.Diff([]string{"docker.io/library/fn:1"}, names); d != "" || err != nil {
			t.Errorf("%s: %v, names %s", name, err, d)
		}
	}
	for want, archive := range map[string]io.Reader{
		"this is not an archive of images, such as `docker save` writes it": strings.NewReader(
			strings.Repeat("kind: Service\n", 100),
		),
		"the archive has no image for this machine (linux/" + runtime.GOARCH + ")": bytes.NewReader(
			saved(t, "riscv64", "fn:1"),
		),
		"no image of the archive has a name": bytes.NewReader(
			saved(t, runtime.GOARCH),
		),
	} {
		if names, err := Import(deadline(t), m.Socket, archive); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("it says %v of %q, want: %s", err, names, want)
		}
	}
}
