// Package ociimage builds a container image from static binaries, without a registry or a
// build daemon: an OCI image layout (image-spec v1.1) as one tar archive, which
// "ctr images import" and its like take.
package ociimage

import (
	"archive/tar"
	"bytes"
	_ "crypto/sha256" // go-digest computes with what the program links
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// annotationImageName is containerd's own: the name that an import gives the image.
const annotationImageName = "io.containerd.image.name"

// nonRoot is the user and group that "distroless" images made customary. As numbers they
// need no /etc/passwd.
const nonRoot = "65532:65532"

// built is the time of everything in an image: the same input gives the same image.
var built = time.Unix(0, 0).UTC()

// Image is what goes into a container image of one layer, for the machine's architecture.
type Image struct {
	// Ref is a name with a tag: example.test/fire:v1.
	Ref string
	// Files are the image's files by absolute path.
	Files      map[string]File
	Entrypoint []string
	// Env are the default environment's variables, NAME=value.
	Env []string
}

// File is a file to copy into an image. It belongs to root there.
type File struct {
	// Source is the path to copy from; empty: the file has Content.
	Source  string
	Content []byte
	// Mode is the permission bits in the image.
	Mode fs.FileMode
}

// Build writes the image as a tar archive. The processes in it will run as user and group
// 65532.
func Build(w io.Writer, image Image) error {
	name, err := reference.ParseNormalizedNamed(image.Ref)
	if err != nil {
		return fmt.Errorf("image reference %q: %w", image.Ref, err)
	}
	tagged, ok := name.(reference.NamedTagged)
	if !ok {
		return fmt.Errorf("image reference %q has no tag", image.Ref)
	}
	layer, err := layerOf(image.Files)
	if err != nil {
		return err
	}
	layout := layout{archive: tar.NewWriter(w)}
	// Not compressed: it never travels, and compression is slower to build and to unpack.
	layerBlob := layout.blob(v1.MediaTypeImageLayer, layer)
	configBlob := layout.json(v1.MediaTypeImageConfig, v1.Image{
		Created:  &built,
		Platform: platform(),
		Config:   v1.ImageConfig{User: nonRoot, Env: image.Env, Entrypoint: image.Entrypoint, WorkingDir: "/"},
		RootFS:   v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{layerBlob.Digest}},
		History:  []v1.History{{Created: &built, CreatedBy: "ociimage"}},
	})
	manifest := layout.json(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    configBlob,
		Layers:    []v1.Descriptor{layerBlob},
	})
	manifest.Platform = new(platform())
	manifest.Annotations = map[string]string{
		annotationImageName:  tagged.String(),
		v1.AnnotationRefName: tagged.Tag(),
	}
	layout.index(manifest)
	if err := layout.close(); err != nil {
		return fmt.Errorf("writing the image archive: %w", err)
	}
	return nil
}

func platform() v1.Platform {
	return v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
}

// layerOf is the archive of the files and the directories above them.
func layerOf(files map[string]File) ([]byte, error) {
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	made := map[string]bool{"/": true}
	for _, file := range sorted(files) {
		if !path.IsAbs(file) || path.Clean(file) != file || file == "/" {
			return nil, fmt.Errorf("file %q of the image is not a clean absolute path", file)
		}
		for _, dir := range parents(file) {
			if made[dir] {
				continue
			}
			made[dir] = true
			header := &tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o755, ModTime: built}
			if err := archive.WriteHeader(header); err != nil {
				return nil, fmt.Errorf("adding directory %s to the image: %w", dir, err)
			}
		}
		if err := add(archive, file, files[file]); err != nil {
			return nil, fmt.Errorf("adding file %s to the image: %w", file, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("ending the image's layer: %w", err)
	}
	return layer.Bytes(), nil
}

func sorted(files map[string]File) []string {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// parents returns the directories above a path, the outermost first, without the root.
func parents(file string) []string {
	var dirs []string
	for dir := path.Dir(file); dir != "/"; dir = path.Dir(dir) {
		dirs = append([]string{dir}, dirs...)
	}
	return dirs
}

func add(archive *tar.Writer, name string, file File) error {
	content := file.Content
	if file.Source != "" {
		var err error
		if content, err = os.ReadFile(file.Source); err != nil {
			return err
		}
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     strings.TrimPrefix(name, "/"),
		Size:     int64(len(content)),
		Mode:     int64(file.Mode.Perm()),
		ModTime:  built,
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

// layout writes an image layout. After an error it writes nothing more, and close returns it.
type layout struct {
	archive *tar.Writer
	err     error
}

func (l *layout) file(name string, content []byte) {
	if l.err != nil {
		return
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644, ModTime: built}
	if l.err = l.archive.WriteHeader(header); l.err == nil {
		_, l.err = l.archive.Write(content)
	}
}

// blob writes content under its digest and describes it.
func (l *layout) blob(mediaType string, content []byte) v1.Descriptor {
	sum := digest.FromBytes(content)
	l.file(path.Join(v1.ImageBlobsDir, sum.Algorithm().String(), sum.Encoded()), content)
	return v1.Descriptor{MediaType: mediaType, Digest: sum, Size: int64(len(content))}
}

func (l *layout) json(mediaType string, value any) v1.Descriptor {
	return l.blob(mediaType, l.encode(value))
}

func (l *layout) index(manifest v1.Descriptor) {
	l.file(v1.ImageIndexFile, l.encode(v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{manifest},
	}))
	l.file(v1.ImageLayoutFile, l.encode(v1.ImageLayout{Version: v1.ImageLayoutVersion}))
}

func (l *layout) encode(value any) []byte {
	encoded, err := json.Marshal(value)
	if err != nil && l.err == nil {
		l.err = err
	}
	return encoded
}

func (l *layout) close() error {
	if l.err != nil {
		return l.err
	}
	return l.archive.Close()
}
