// Command release makes what a release consists of, beside the images: the chart with their digests, the command line for
// each system, what is in each program (CycloneDX), and the checksums of all. The same source and the same Go make the same
// files.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"golang.org/x/mod/semver"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// cli is the command line's package.
const cli = "control-plane/cmd/headstart"

// checksums is the name of the file that has them, as sha256sum writes and reads it.
const checksums = "checksums.txt"

// digestsName is the name of the file with the images' digests, by their names.
const digestsName = "images.json"

// gatewayFiles are Headstart's parts of Istio's gateways, by their names in a release.
var gatewayFiles = map[string]string{
	"istio-overlay.yaml": "install.yaml", "gateway-chart.yaml": "gateway-chart.yaml", "gateway-api.yaml": "gateway-api.yaml",
}

// changelog is the name of the file that says what users notice.
const changelog = "CHANGELOG.md"

// target is a system that the command line is for.
type target struct{ system, arch string }

var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

func main() {
	var r release
	flag.StringVar(&r.out, "out", "out/release", "directory of what is made")
	flag.StringVar(&r.version, "version", "", "the release's, such as v1.2.0")
	flag.StringVar(&r.images, "images", "out/images", "directory that `make images` has made, for the images' digests")
	flag.StringVar(&r.registry, "registry", "", "host and path prefix of the registry that the images were pushed to; empty: none")
	flag.StringVar(&r.changes, "changelog", changelog, "file that has a section of the release")
	flag.StringVar(&r.systems, "systems", "", "comma-separated systems of the command lines, such as linux/amd64; empty: all")
	check := flag.Bool("check", false, "only see whether there can be a release of that version")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := r.check()
	if err == nil && !*check {
		err = r.run(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is what is asked for.
type release struct {
	out, version, images, registry, changes, systems string

	made []string // names in out
}

// check says why there can be no release, before anything is made.
func (r *release) check() error {
	if semver.Canonical(r.version) != r.version || r.version == "" { // no build metadata either: images' tags have no plus
		return fmt.Errorf("--version %q: a release has a semantic version such as v1.2.0 (`make release VERSION=v1.2.0`)", r.version)
	}
	_, err := r.notes()
	return err
}

func (r *release) run(ctx context.Context) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	notes, err := r.notes()
	if err != nil {
		return err
	}
	if err := r.write(changelog, text(notes)); err != nil {
		return err
	}
	chart, err := r.chart("manifests/charts/headstart")
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := r.described(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(gatewayFiles)) {
		content, err := os.ReadFile(filepath.Join("manifests/istio", gatewayFiles[name]))
		if err != nil {
			return err
		}
		if err := r.write(name, text(content)); err != nil {
			return err
		}
	}
	for _, t := range targets {
		if !r.wanted(t) {
			continue
		}
		fmt.Fprintln(os.Stderr, "· command line for", t.system, t.arch)
		program, err := artifact.Program(ctx, ".", cli, r.version, t.system, t.arch)
		if err != nil {
			return err
		}
		if err := r.archive(t, program); err != nil {
			return err
		}
	}
	if err := r.sum(); err != nil {
		return err
	}
	return r.publish(ctx, chart) // when all else is made
}

func (r *release) wanted(t target) bool {
	return r.systems == "" || slices.Contains(strings.Split(r.systems, ","), t.system+"/"+t.arch)
}

// archive packs a program, with what is in it beside.
func (r *release) archive(t target, program []byte) error {
	name := fmt.Sprintf("headstart_%s_%s_%s", strings.TrimPrefix(r.version, "v"), t.system, t.arch)
	parts, err := artifact.Modules(program)
	if err != nil {
		return fmt.Errorf("what is in %s: %w", name, err)
	}
	contents, err := artifact.Contents(artifact.Part(cdx.ComponentTypeApplication, "headstart", r.version,
		"pkg:golang/"+artifact.Module+"/"+cli+"@"+r.version), parts)
	if err != nil {
		return fmt.Errorf("what is in %s: %w", name, err)
	}
	if err := r.write(name+".cdx.json", text(contents)); err != nil {
		return err
	}
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	files := []artifact.File{{Name: "LICENSE", Content: licence, Mode: 0o644}, {Name: "headstart", Content: program, Mode: 0o755}}
	if t.system == "windows" { // whose own programs open no tar archives by a click
		files[1].Name += ".exe"
		return r.write(name+".zip", artifact.Zip, files...)
	}
	return r.write(name+".tar.gz", artifact.TarGz, files...)
}

// described takes over which images belong to the release, and what is in them.
func (r *release) described() error {
	digests, err := r.digests()
	if err != nil {
		return err
	}
	list, err := json.MarshalIndent(digests, "", "  ")
	if err != nil {
		return err
	}
	if err := r.write(digestsName, text(append(list, '\n'))); err != nil {
		return err
	}
	for _, image := range slices.Sorted(maps.Keys(digests)) {
		paths, err := filepath.Glob(filepath.Join(r.images, artifact.ImageContents(image, r.version, "*")))
		if err != nil {
			return err
		}
		if len(paths) == 0 {
			return fmt.Errorf("image %s was not made of version %s; make images first", image, r.version)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if err := r.write(filepath.Base(path), text(content)); err != nil {
				return err
			}
		}
	}
	return nil
}

// notes takes the version's section out of the changelog.
func (r *release) notes() ([]byte, error) {
	all, err := os.ReadFile(r.changes)
	if err != nil {
		return nil, err
	}
	heading := "## " + strings.TrimPrefix(r.version, "v")
	at := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(heading) + "( .*)?$").FindIndex(all)
	if at == nil {
		return nil, fmt.Errorf("%s has no section %q, with what users notice of this release", r.changes, heading)
	}
	section, _, _ := bytes.Cut(all[at[0]:], []byte("\n## "))
	return append(bytes.TrimRight(section, "\n"), '\n'), nil
}

// text writes what is no archive.
func text(content []byte) func(io.Writer, ...artifact.File) error {
	return func(to io.Writer, _ ...artifact.File) error {
		_, err := to.Write(content)
		return err
	}
}

// write makes a file of the release.
func (r *release) write(name string, write func(io.Writer, ...artifact.File) error, files ...artifact.File) error {
	r.made = append(r.made, name)
	return artifact.Write(r.path(name), write, files...)
}

func (r *release) path(name string) string { return filepath.Join(r.out, name) }

// sum writes the checksums of all that was made.
func (r *release) sum() error {
	var lines bytes.Buffer
	for _, name := range r.made {
		content, err := os.ReadFile(r.path(name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(content), name)
	}
	return os.WriteFile(filepath.Join(r.out, checksums), lines.Bytes(), 0o644)
}

// digests are those of the images, by their names.
func (r *release) digests() (all map[string]string, err error) {
	text, err := os.ReadFile(filepath.Join(r.images, "digests.json"))
	if err != nil {
		return nil, fmt.Errorf("%w; make images first", err)
	}
	err = json.Unmarshal(text, &all)
	return all, err
}
