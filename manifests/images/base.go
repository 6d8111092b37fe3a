package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// user is what "distroless" images made customary.
	user = "65532:65532"
	// headerTimeout is more than ko on the same machine needs.
	headerTimeout = 10 * time.Second
)

// baseImage is what the programs need of a system: whom to trust, and users with names.
func baseImage(roots []byte, platform v1.Platform) (*image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, ModTime: built}); err != nil {
			return nil, err
		}
	}
	err := errors.Join(
		add(w, "etc/passwd", []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"), 0o644),
		add(w, "etc/group", []byte("root:x:0:\nnonroot:x:65532:\n"), 0o644),
		add(w, "etc/ssl/certs/ca-certificates.crt", roots, 0o644),
		w.Close())
	if err != nil {
		return nil, err
	}
	return newImage(layer.Bytes(), platform, v1.ImageConfig{User: user, WorkingDir: "/"})
}

// serveBase has a registry of its own on this machine, as long as ko needs it: ko takes a
// base from nowhere else. It returns the base's reference.
func serveBase(roots string, platform v1.Platform) (ref string, stop func() error, err error) {
	pem, err := os.ReadFile(roots)
	if err != nil {
		return "", nil, fmt.Errorf("%w; name the file with the roots of TLS by --roots", err)
	}
	base, err := baseImage(pem, platform)
	if err != nil {
		return "", nil, fmt.Errorf("making the base image: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("serving the base image: %w", err)
	}
	server := &http.Server{Handler: base, ReadHeaderTimeout: headerTimeout}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	stop = func() error {
		err := server.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}
	return l.Addr().String() + "/base@" + base.manifest.Digest.String(), stop, nil
}

// ServeHTTP is as much of a registry as pulling one image by digest needs (distribution
// specification, pull).
func (i *image) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v2/" {
		return
	}
	d := digest.Digest(path.Base(r.URL.Path))
	content, ok := i.blobs[d]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.NotFound(w, r)
		return
	}
	mediaType := "application/octet-stream"
	if strings.Contains(r.URL.Path, "/manifests/") {
		mediaType = i.manifest.MediaType
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", d.String())
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(content) // a reader that goes away has nothing to be told
	}
}
