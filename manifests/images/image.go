package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is what "distroless" images made customary.
	user = "65532:65532"
	// appDir and dataDir are where ko, which built the images before, has programs and their
	// files: charts name paths in them.
	appDir, dataDir = "ko-app/", "var/run/ko/"

	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/ko-app"

	// What an import calls the image: by containerd, and by others.
	annotationImageName, annotationRefName = "io.containerd.image.name", "org.opencontainers.image.ref.name"
)

// built is the time of everything.
var built = time.Unix(0, 0).UTC()

// file is a file of an image or an archive.
type file struct {
	name    string
	content []byte
	mode    int64
}

// pack writes a tar archive. The same files make the same archive.
func pack(to io.Writer, files ...file) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: built}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return w.Close()
}

// with returns the image with one more layer, of the files.
func with(base v1.Image, files ...file) (v1.Image, error) {
	var archive bytes.Buffer
	if err := pack(&archive, files...); err != nil {
		return nil, err
	}
	kind := types.OCILayer
	if of, err := base.MediaType(); err != nil {
		return nil, err
	} else if of == types.DockerManifestSchema2 {
		kind = types.DockerLayer
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive.Bytes())), nil
	}, tarball.WithMediaType(kind), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(base, layer)
}

// image makes an image of one layer.
func image(platform v1.Platform, config v1.Config, files ...file) (v1.Image, error) {
	blank := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err := mutate.ConfigFile(blank, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Config: config,
		Created: v1.Time{Time: built}, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return with(base, files...)
}

// ownBase is what the programs need of a system: whom to trust, and users with names.
func ownBase(roots []byte, platform v1.Platform) (v1.Image, error) {
	return image(platform, v1.Config{User: user, WorkingDir: "/", Env: []string{"PATH=" + searchPath}},
		file{
			"etc/passwd", []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"),
			0o644,
		},
		file{"etc/group", []byte("root:x:0:\nnonroot:x:65532:\n"), 0o644},
		file{"etc/ssl/certs/ca-certificates.crt", roots, 0o644})
}

// pull returns an image of a registry.
func pull(ctx context.Context, from string, platform v1.Platform) (v1.Image, error) {
	ref, err := name.ParseReference(from)
	if err != nil {
		return nil, err
	}
	return remote.Image(ref, append(registryOptions(ctx), remote.WithPlatform(platform))...)
}

// push writes an image to a registry.
func push(ctx context.Context, to string, i v1.Image) error {
	ref, err := name.NewTag(to)
	if err != nil {
		return err
	}
	return remote.Write(ref, i, registryOptions(ctx)...)
}

// registryOptions have the credentials of `docker login`.
func registryOptions(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// program is the image of a program, with its data, on a base.
func program(base v1.Image, app string, content []byte, data ...file) (v1.Image, error) {
	files := []file{{appDir + app, content, 0o755}}
	for _, d := range data {
		d.name = dataDir + d.name
		files = append(files, d)
	}
	i, err := with(base, files...)
	if err != nil {
		return nil, err
	}
	config, err := i.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: built}
	config.Config.Entrypoint, config.Config.Cmd = []string{"/" + appDir + app}, nil
	config.Config.Env = append(config.Config.Env, "KO_DATA_PATH=/"+filepath.Clean(dataDir))
	return mutate.ConfigFile(i, config)
}

// save writes an image as the archive of an OCI layout, with the name that it gets by an import.
func save(i v1.Image, to, as string) (err error) {
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
	if err := l.AppendImage(i, layout.WithAnnotations(map[string]string{
		annotationImageName: fmt.Sprintf("docker.io/%s:%s", tag.RepositoryStr(), tag.TagStr()),
		annotationRefName:   tag.TagStr(),
	})); err != nil {
		return err
	}
	var files []file
	root := os.DirFS(dir)
	if err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		files = append(files, file{path, content, 0o644})
		return err
	}); err != nil {
		return err
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(pack(f, files...), f.Close())
}
