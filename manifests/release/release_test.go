package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

const digest = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// open returns a release of v1.2.3 whose images are made.
func open(t *testing.T) *release {
	t.Helper()
	t.Chdir("../..") // where the Makefile runs it
	r := &release{out: t.TempDir(), version: "v1.2.3", images: t.TempDir(), registry: "registry.example.com/mirror", changes: changelog}
	names := []string{"headstart-controlplane", "headstart-node", "headstart-installer", "headstart-prefetch"}
	digests := `{"` + strings.Join(names, `": "`+digest+`", "`) + `": "` + digest + `"}`
	if err := os.WriteFile(filepath.Join(r.images, "digests.json"), []byte(digests), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// untar has the files of a compressed archive.
func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// The chart of a release names its own version, and each image by its digest.
func TestTheChartNamesTheImagesThatWereMade(t *testing.T) {
	r := open(t)
	if _, err := r.chart("manifests/charts/headstart"); err != nil {
		t.Fatal(err)
	}
	files := untar(t, r.read(t, "headstart-1.2.3.tgz"))
	var chart struct{ Version, AppVersion string }
	var values struct{ Image map[string]any }
	for name, to := range map[string]any{"headstart/Chart.yaml": &chart, "headstart/values.yaml": &values} {
		if err := yaml.Unmarshal(files[name], to); err != nil {
			t.Fatal(err)
		}
	}
	if chart.Version != "1.2.3" || chart.AppVersion != "v1.2.3" || values.Image["registry"] != r.registry {
		t.Errorf("%+v", chart)
	}
	for name := range charted {
		image, _ := values.Image[name].(map[string]any)
		if image["digest"] != digest {
			t.Errorf("%s is %v", name, image)
		}
	}
	if len(files["headstart/templates/node.yaml"]) == 0 {
		t.Error("it has no templates")
	}
	r.registry = "" // nobody can have them by their digests
	if _, err := r.chart("manifests/charts/headstart"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(untar(t, r.read(t, "headstart-1.2.3.tgz"))["headstart/values.yaml"]), digest) {
		t.Error("the chart has digests of images that are in no registry")
	}
	r.registry = "registry.example.com/mirror"
	for _, name := range []string{"headstart-node", "headstart-prefetch"} {
		lacks := &release{out: r.out, version: r.version, images: t.TempDir(), registry: r.registry}
		if err := os.WriteFile(filepath.Join(lacks.images, "digests.json"), []byte(`{"`+name+`": "`+digest+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := lacks.chart("manifests/charts/headstart"); err == nil || !strings.Contains(err.Error(), "was not made; make images first") {
			t.Errorf("with %s alone: %v", name, err)
		}
	}
}

// Helm pulls the chart from a registry as it pulls one that Helm has pushed.
func TestTheChartGoesToARegistry(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	r := open(t)
	r.registry, r.version = strings.TrimPrefix(server.URL, "http://")+"/mirror", "v1.2.3-rc.1"
	chart, err := r.chart("manifests/charts/headstart")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.publish(t.Context(), chart); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(r.registry + "/headstart-mesh/charts/headstart:1.2.3-rc.1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := got.Manifest()
	if err != nil || manifest.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" {
		t.Errorf("the manifest is %+v, %v", manifest, err)
	}
	layers, err := got.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(content)
	if err != nil || !bytes.Equal(archive, r.read(t, "headstart-1.2.3-rc.1.tgz")) {
		t.Errorf("%d bytes, %v", len(archive), err)
	}
	config, err := got.RawConfigFile()
	if err != nil || !bytes.Contains(config, []byte(`"version":"1.2.3-rc.1"`)) {
		t.Errorf("%s, %v", config, err)
	}
	if len(r.read(t, "headstart-1.2.3-rc.1.oci.tar")) < len(archive) {
		t.Error("the layout has no chart")
	}
}

// A program comes with its licence and with what is in it. The same program makes the same files, and the checksums are
// those that sha256sum makes.
func TestProgramsArePacked(t *testing.T) {
	r := open(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	var before map[string][]byte
	for range 2 {
		r.made = nil
		for _, system := range []string{"linux", "windows"} {
			if err := r.archive(target{system, "amd64"}, program); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.sum(); err != nil {
			t.Fatal(err)
		}
		now := map[string][]byte{}
		for _, name := range append(slices.Clone(r.made), checksums) {
			if now[name] = r.read(t, name); before != nil && !bytes.Equal(before[name], now[name]) {
				t.Errorf("%s is another one each time", name)
			}
		}
		before = now
	}
	if files := untar(t, before["headstart_1.2.3_linux_amd64.tar.gz"]); !bytes.Equal(files["headstart"], program) || len(files["LICENSE"]) == 0 {
		t.Error("the archive lacks the program, or the licence")
	}
	content := before["headstart_1.2.3_windows_amd64.zip"]
	z, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if len(z.File) != 2 || z.File[1].Name != "headstart.exe" || z.File[1].Mode() != 0o755 {
		t.Errorf("%+v", z.File)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(before["headstart_1.2.3_linux_amd64.cdx.json"]), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Component.Version != "v1.2.3" ||
		!slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool { return c.Name == "github.com/CycloneDX/cyclonedx-go" && c.Version != "" }) {
		t.Errorf("it is made of %+v", bom.Components)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksums)
	check.Dir = r.out
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Of the changelog a release has its own section, and no other version's.
func TestAReleaseSaysWhatIsNew(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "# Changelog\n\n## 1.2.30\n\n- another\n\n## 1.2.3 - 2026-12-01\n\n- new\n\n## 1.2.2\n\n- old\n"
	if err := os.WriteFile(changelog, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &release{version: "v1.2.3", changes: changelog}
	if got, err := r.notes(); err != nil || string(got) != "## 1.2.3 - 2026-12-01\n\n- new\n" {
		t.Errorf("got %q, %v", got, err)
	}
	r = &release{version: "v1.3.0", changes: changelog}
	if err := r.check(); err == nil || !strings.Contains(err.Error(), `no section "## 1.3.0"`) {
		t.Error(err)
	}
}

func TestAReleaseHasAVersion(t *testing.T) {
	for _, version := range []string{"", "dev", "1.2.3", "v1.2", "v1.2.0+x", "65eb043a"} {
		r := &release{version: version}
		if err := r.check(); err == nil || !strings.Contains(err.Error(), "make release VERSION=v1.2.0") {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// A release says which images belong to it, and what is in each. Those of another version are not taken for its own.
func TestAReleaseDescribesItsImages(t *testing.T) {
	r := open(t)
	put := func(version string) {
		for _, image := range charted {
			for _, platform := range []string{"linux_amd64", "linux_arm64"} {
				if err := os.WriteFile(filepath.Join(r.images, artifact.ImageContents(image, version, platform)), []byte("{}"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	put("v1.2.2")
	if err := r.described(); err == nil || !strings.Contains(err.Error(), "was not made of version v1.2.3; make images first") {
		t.Errorf("with images of another version: %v", err)
	}
	put("v1.2.3")
	r.made = nil
	if err := r.described(); err != nil {
		t.Fatal(err)
	}
	if len(r.made) != 1+2*len(charted) || !slices.Contains(r.made, "image_headstart-node_1.2.3_linux_arm64.cdx.json") {
		t.Errorf("it has %q", r.made)
	}
	var digests map[string]string
	if err := json.Unmarshal(r.read(t, digestsName), &digests); err != nil || digests["headstart-node"] != digest {
		t.Errorf("%v, %v", digests, err)
	}
}
