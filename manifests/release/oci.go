package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// Media types of a chart in a registry (https://helm.sh/docs/topics/registries).
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// repository is the chart's, below the registry.
const repository = "headstart-mesh/charts/headstart"

// packed is a chart as `helm push` makes it: Chart.yaml as JSON, and the archive.
type packed struct {
	config, manifest []byte
	content          v1.Layer
}

func pack(metadata, archive []byte) (v1.Image, error) {
	config, err := yaml.YAMLToJSON(metadata)
	if err != nil {
		return nil, err
	}
	p := &packed{config: config, content: static.NewLayer(archive, chartContent)}
	layer, err := partial.Descriptor(p.content)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	p.manifest, err = json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: chartConfig, Digest: digest, Size: size}, Layers: []v1.Descriptor{*layer}})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(p)
}

// MediaType implements partial.CompressedImageCore.
func (p *packed) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (p *packed) RawConfigFile() ([]byte, error) { return p.config, nil }

// RawManifest implements partial.CompressedImageCore.
func (p *packed) RawManifest() ([]byte, error) { return p.manifest, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (p *packed) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return p.content, nil }

// save writes a chart as an OCI layout.
func (r *release) save(chart v1.Image) error {
	name := r.chartName() + ".oci.tar"
	r.made = append(r.made, name)
	return artifact.Save(chart, r.path(name), r.chartRef())
}

// chartRef is the chart's reference below a registry. Helm, too, has no plus in tags.
func (r *release) chartRef() string {
	return repository + ":" + strings.ReplaceAll(strings.TrimPrefix(r.version, "v"), "+", "_")
}

// publish writes a chart to the registry, if there is one.
func (r *release) publish(ctx context.Context, chart v1.Image) error {
	if r.registry == "" {
		return nil
	}
	ref := strings.TrimSuffix(r.registry, "/") + "/" + r.chartRef()
	if err := artifact.Push(ctx, ref, chart); err != nil {
		return fmt.Errorf("pushing %s: %w", ref, err)
	}
	return nil
}
