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

// amend takes out of ko's image where its base came from, if that is a port of this machine
// and another one each time, and adds the file, if there is one, as a layer.
//
// ko itself would take files from a directory beside the source, where a build that is
// killed leaves them behind, and a commit takes them along.
func amend(layout string, forgetBase bool, file string, content []byte) error {
	index, err := readIndex(layout)
	if err != nil {
		return err
	}
	old := index.Manifests[0]
	blobs := filepath.Join(layout, v1.ImageBlobsDir, "sha256")
	var manifest v1.Manifest
	if err := readJSON(filepath.Join(blobs, old.Digest.Encoded()), &manifest); err != nil {
		return err
	}
	added := &image{blobs: map[digest.Digest][]byte{}}
	gone := []digest.Digest{old.Digest}
	if forgetBase {
		delete(manifest.Annotations, v1.AnnotationBaseImageName)
	}
	if file != "" {
		var config v1.Image
		gone = append(gone, manifest.Config.Digest)
		if err := readJSON(filepath.Join(blobs, manifest.Config.Digest.Encoded()), &config); err != nil {
			return err
		}
		if err := added.append(&manifest, &config, file, content); err != nil {
			return err
		}
	}
	now, err := added.json(old.MediaType, manifest)
	if err != nil {
		return err
	}
	old.Digest, old.Size = now.Digest, now.Size
	index.Manifests[0] = old
	for _, d := range gone {
		if err := os.Remove(filepath.Join(blobs, d.Encoded())); err != nil {
			return err
		}
	}
	for d, content := range added.blobs {
		if err := os.WriteFile(filepath.Join(blobs, d.Encoded()), content, 0o644); err != nil {
			return err
		}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(layout, v1.ImageIndexFile), text, 0o644)
}

// append adds a layer with one executable file.
func (i *image) append(manifest *v1.Manifest, config *v1.Image, file string, content []byte) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(add(w, file, content, 0o755), w.Close()); err != nil {
		return err
	}
	packed, err := compress(layer.Bytes())
	if err != nil {
		return err
	}
	manifest.Layers = append(manifest.Layers, i.blob(manifest.Layers[len(manifest.Layers)-1].MediaType, packed))
	config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.NewDigestFromBytes(digest.SHA256, sum(layer.Bytes())))
	config.History = append(config.History, v1.History{Created: &built, CreatedBy: "headstart"})
	manifest.Config, err = i.json(manifest.Config.MediaType, config)
	return err
}

func compress(layer []byte) ([]byte, error) {
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
	return packed.Bytes(), nil
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

// readIndex reads the index of a layout with one image.
func readIndex(layout string) (index v1.Index, err error) {
	if err := readJSON(filepath.Join(layout, v1.ImageIndexFile), &index); err != nil {
		return index, err
	}
	if n := len(index.Manifests); n != 1 {
		return index, fmt.Errorf("the layout has %d images, not one", n)
	}
	return index, nil
}

// archive writes an OCI layout's directory as one file, with the name that the image gets
// by an import, and returns the image's digest.
func archive(layout, file, name string) (d digest.Digest, err error) {
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return "", fmt.Errorf("image reference %q: %w", name, err)
	}
	index, err := readIndex(layout)
	if err != nil {
		return "", err
	}
	m := &index.Manifests[0]
	m.Annotations = map[string]string{annotationImageName: ref.String(), v1.AnnotationRefName: reference.TagNameOnly(ref).(reference.Tagged).Tag()}
	text, err := json.Marshal(index)
	if err != nil {
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
	packed, err := compress(layer)
	if err != nil {
		return nil, err
	}
	i := &image{blobs: map[digest.Digest][]byte{}}
	layerBlob := i.blob(v1.MediaTypeImageLayerGzip, packed)
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
