package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationImageName is containerd's own: the name that an import gives the image.
const annotationImageName = "io.containerd.image.name"

// built is the time of everything.
var built = time.Unix(0, 0).UTC()

// forgetBase takes out of an image where its base came from: a port of this machine, which
// is another one each time.
func forgetBase(layout string) error {
	var index v1.Index
	var manifest v1.Manifest
	if err := readJSON(filepath.Join(layout, v1.ImageIndexFile), &index); err != nil {
		return err
	}
	for i, m := range index.Manifests {
		file := filepath.Join(layout, v1.ImageBlobsDir, "sha256", m.Digest.Encoded())
		if err := readJSON(file, &manifest); err != nil {
			return err
		}
		delete(manifest.Annotations, v1.AnnotationBaseImageName)
		text, err := json.Marshal(manifest)
		if err != nil {
			return err
		}
		d := digest.NewDigestFromBytes(digest.SHA256, sum(text))
		index.Manifests[i].Digest, index.Manifests[i].Size = d, int64(len(text))
		if err := errors.Join(os.Remove(file), os.WriteFile(filepath.Join(filepath.Dir(file), d.Encoded()), text, 0o644)); err != nil {
			return err
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(layout, v1.ImageIndexFile), text, 0o644)
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

// archive writes an OCI layout's directory as one file, with the name that the image gets
// by an import, and returns the image's digest.
func archive(layout, file, name string) (d digest.Digest, err error) {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("image reference %q: %w", name, err)
	}
	var index v1.Index
	text, err := os.ReadFile(filepath.Join(layout, v1.ImageIndexFile))
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(text, &index); err != nil || len(index.Manifests) != 1 {
		return "", fmt.Errorf("the layout has %d images, not one: %w", len(index.Manifests), err)
	}
	m := &index.Manifests[0]
	m.Annotations = map[string]string{annotationImageName: ref.String(), v1.AnnotationRefName: reference.TagNameOnly(ref).(reference.Tagged).Tag()}
	if text, err = json.Marshal(index); err != nil {
		return "", err
	}
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	err = filepath.WalkDir(layout, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(layout, path)
		if err != nil {
			return err
		}
		content := text
		if rel != v1.ImageIndexFile {
			if content, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		return add(w, filepath.ToSlash(rel), content, 0o644)
	})
	return m.Digest, errors.Join(err, w.Close())
}

func add(w *tar.Writer, name string, content []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: built}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// image is one image in memory, by digest.
type image struct {
	blobs    map[digest.Digest][]byte
	manifest v1.Descriptor
}

// newImage makes an image of one layer, an uncompressed tar archive.
func newImage(layer []byte, platform v1.Platform, config v1.ImageConfig) (*image, error) {
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(layer); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	i := &image{blobs: map[digest.Digest][]byte{}}
	layerBlob := i.blob(v1.MediaTypeImageLayerGzip, packed.Bytes())
	diff := digest.NewDigestFromBytes(digest.SHA256, sum(layer))
	configBlob, err := i.json(v1.MediaTypeImageConfig, v1.Image{
		Created: &built, Platform: platform, Config: config,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{diff}}, History: []v1.History{{Created: &built, CreatedBy: "headstart"}},
	})
	if err != nil {
		return nil, err
	}
	i.manifest, err = i.json(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: configBlob, Layers: []v1.Descriptor{layerBlob},
	})
	return i, err
}

func sum(b []byte) []byte {
	s := sha256.Sum256(b)
	return s[:]
}

func (i *image) blob(mediaType string, content []byte) v1.Descriptor {
	d := digest.NewDigestFromBytes(digest.SHA256, sum(content))
	i.blobs[d] = content
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(content))}
}

func (i *image) json(mediaType string, v any) (v1.Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return i.blob(mediaType, text), nil
}

// write makes an OCI layout's directory.
func (i *image) write(dir string) error {
	blobs := filepath.Join(dir, v1.ImageBlobsDir, "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return err
	}
	for d, content := range i.blobs {
		if err := os.WriteFile(filepath.Join(blobs, d.Encoded()), content, 0o644); err != nil {
			return err
		}
	}
	index, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{i.manifest}})
	if err != nil {
		return err
	}
	version, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, v1.ImageIndexFile), index, 0o644), os.WriteFile(filepath.Join(dir, v1.ImageLayoutFile), version, 0o644))
}

// wasmLayout writes the filter's image: what Istio calls an OCI image of a Wasm module.
func wasmLayout(code []byte, dir string) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(add(w, "plugin.wasm", code, 0o644), w.Close()); err != nil {
		return err
	}
	i, err := newImage(layer.Bytes(), v1.Platform{OS: "wasi", Architecture: "wasm"}, v1.ImageConfig{})
	if err != nil {
		return err
	}
	return i.write(dir)
}
