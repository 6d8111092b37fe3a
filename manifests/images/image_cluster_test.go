//go:build cluster

package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The same source gives the same image, and it has what it needs.
func TestImagesHaveWhatTheirProgramsNeed(t *testing.T) {
	const name, data = "headstart-installer", "var/run/ko/containerd-shim-headstart-v2"
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, []byte("roots"), 0o600); err != nil {
		t.Fatal(err)
	}
	var first loaded
	for i := range 2 {
		b := build{
			out: t.TempDir(), tag: "v1", version: "v1", roots: roots, archs: []string{runtime.GOARCH}, only: []string{name},
			dir: filepath.Join("..", ".."),
		}
		if err := b.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := load(t, filepath.Join(b.out, name+".tar"))
		if i == 0 {
			first = got
		} else if got.digest != first.digest {
			t.Errorf("two builds have the digests %s and %s", first.digest, got.digest)
		}
	}
	if strings.Join(first.config.Config.Entrypoint, " ") != "/ko-app/"+name || first.config.Config.User != user {
		t.Errorf("entrypoint %q, user %q", first.config.Config.Entrypoint, first.config.Config.User)
	}
	for _, want := range []string{"ko-app/" + name, data, "etc/ssl/certs/ca-certificates.crt"} {
		found := false
		for _, layer := range first.layers {
			for name, content := range layer {
				found = found || strings.TrimPrefix(name, "/") == want && len(content) > 0
			}
		}
		if !found {
			t.Errorf("the image has no %s", want)
		}
	}
}
