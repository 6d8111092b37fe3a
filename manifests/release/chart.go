package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// charted are the images that the chart names, by its names for them.
var charted = map[string]string{
	"controlplane": "headstart-controlplane", "node": "headstart-node", "installer": "headstart-installer", "prefetch": "headstart-prefetch",
}

// chart packs the chart, of the release's version, as an archive and for registries. The images that were pushed it names by their registry and their
// digests; others are known by the version, to those who import them. Helm, too, packs a chart below its name.
func (r *release) chart(dir string) (v1.Image, error) {
	version := strings.TrimPrefix(r.version, "v")
	var files []artifact.File
	var metadata []byte
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		switch {
		case err != nil:
			return err
		case path == "Chart.yaml":
			content, err = released(content, version, r.version)
			metadata = content
		case path == "values.yaml" && r.registry != "":
			content, err = r.pinned(content)
		}
		files = append(files, artifact.File{Name: "headstart/" + path, Content: content, Mode: 0o644})
		return err
	})
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	if err := artifact.TarGz(&archive, files...); err != nil {
		return nil, err
	}
	if err := r.write(r.chartName()+".tgz", text(archive.Bytes())); err != nil {
		return nil, err
	}
	image, err := pack(metadata, archive.Bytes())
	if err != nil {
		return nil, err
	}
	return image, r.save(image)
}

func (r *release) chartName() string { return "headstart-" + strings.TrimPrefix(r.version, "v") }

// released is Chart.yaml with the release's version, and the tag of its images.
func released(chart []byte, version, tag string) ([]byte, error) {
	for field, value := range map[string]string{"version": version, "appVersion": tag} {
		line := regexp.MustCompile(`(?m)^` + field + `: .*$`)
		if len(line.FindAll(chart, -1)) != 1 {
			return nil, fmt.Errorf("file Chart.yaml has not one line %s", field)
		}
		chart = line.ReplaceAll(chart, fmt.Appendf(nil, "%s: %q", field, value))
	}
	return chart, nil
}

// pinned are the values with the registry, and the images' digests.
func (r *release) pinned(values []byte) ([]byte, error) {
	digests, err := r.digests()
	if err != nil {
		return nil, err
	}
	is := map[string]string{`registry: ""`: fmt.Sprintf("registry: %q", r.registry)}
	for name, image := range charted {
		if digests[image] == "" {
			return nil, fmt.Errorf("image %s was not made; make images first", image)
		}
		line := name + ": {repository: headstart-mesh/" + image + ", digest: "
		is[line+`""}`] = fmt.Sprintf("%s%q}", line, digests[image])
	}
	for was, now := range is {
		if bytes.Count(values, []byte(was)) != 1 {
			return nil, fmt.Errorf("values.yaml has not one line %s", was)
		}
		values = bytes.Replace(values, []byte(was), []byte(now), 1)
	}
	return values, nil
}
