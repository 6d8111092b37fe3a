package artifact

import (
	"context"
	"fmt"
	"io/fs"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// What an import calls an image: by containerd, and by others.
const (
	AnnotationImageName = "io.containerd.image.name"
	AnnotationRefName   = "org.opencontainers.image.ref.name"
)

// Save writes an image, or an index of images, as the archive of an OCI layout, with the name that it gets by an import.
func Save(i mutate.Appendable, to, as string) (err error) {
	tag, err := name.NewTag(as)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "headstart-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{
		AnnotationImageName: fmt.Sprintf("docker.io/%s:%s", tag.RepositoryStr(), tag.TagStr()),
		AnnotationRefName:   tag.TagStr(),
	})
	switch i := i.(type) {
	case v1.Image:
		err = l.AppendImage(i, named)
	case v1.ImageIndex:
		err = l.AppendIndex(i, named)
	}
	if err != nil {
		return err
	}
	var files []File
	root := os.DirFS(dir)
	if err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		files = append(files, File{Name: path, Content: content, Mode: 0o644})
		return err
	}); err != nil {
		return err
	}
	return Write(to, Tar, files...)
}

// Push writes an image, or an index of images, to a registry.
func Push(ctx context.Context, to string, i mutate.Appendable) error {
	ref, err := name.NewTag(to)
	if err != nil {
		return err
	}
	if index, is := i.(v1.ImageIndex); is {
		return remote.WriteIndex(ref, index, RegistryOptions(ctx)...)
	}
	return remote.Write(ref, i.(v1.Image), RegistryOptions(ctx)...)
}

// RegistryOptions have the credentials of `docker login`.
func RegistryOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}
