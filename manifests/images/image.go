package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

const (
	// user is what "distroless" images made customary.
	user = "65532:65532"
	// appDir and dataDir are where ko, which built the images before, has programs and their
	// files: charts name paths in them.
	appDir, dataDir = "ko-app/", "var/run/ko/"

	searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/ko-app"
)

// with returns the image with one more layer, of the files.
func with(base v1.Image, files ...artifact.File) (v1.Image, error) {
	var archive bytes.Buffer
	if err := artifact.Tar(&archive, files...); err != nil {
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
func image(platform v1.Platform, config v1.Config, files ...artifact.File) (v1.Image, error) {
	blank := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err := mutate.ConfigFile(blank, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Config: config,
		Created: v1.Time{Time: artifact.Built}, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return with(base, files...)
}

// ownBase is what the programs need of a system: whom to trust, and users with names.
func ownBase(roots []byte, platform v1.Platform) (v1.Image, error) {
	return image(platform, v1.Config{User: user, WorkingDir: "/", Env: []string{"PATH=" + searchPath}},
		artifact.File{Name: "etc/passwd", Mode: 0o644,
			Content: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n")},
		artifact.File{Name: "etc/group", Mode: 0o644, Content: []byte("root:x:0:\nnonroot:x:65532:\n")},
		artifact.File{Name: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Content: roots})
}

// pull returns an image of a registry.
func pull(ctx context.Context, from string, platform v1.Platform) (v1.Image, error) {
	ref, err := name.ParseReference(from)
	if err != nil {
		return nil, err
	}
	return remote.Image(ref, append(artifact.RegistryOptions(ctx), remote.WithPlatform(platform))...)
}

// program is the image of a program, with its data, on a base.
func program(base v1.Image, app string, content []byte, data ...artifact.File) (v1.Image, error) {
	files := []artifact.File{{Name: appDir + app, Content: content, Mode: 0o755}}
	for _, d := range data {
		d.Name = dataDir + d.Name
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
	config.Created = v1.Time{Time: artifact.Built}
	config.Config.Entrypoint, config.Config.Cmd = []string{"/" + appDir + app}, nil
	config.Config.Env = append(config.Config.Env, "KO_DATA_PATH=/"+filepath.Clean(dataDir))
	return mutate.ConfigFile(i, config)
}
