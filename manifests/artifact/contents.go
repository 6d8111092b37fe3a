package artifact

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Contents says what something is made of (CycloneDX 1.6, JSON). It has no serial number and no time: it is the same for the
// same parts.
func Contents(of cdx.Component, parts []cdx.Component) ([]byte, error) {
	bom := cdx.NewBOM()
	of.BOMRef = of.Name
	bom.Metadata = &cdx.Metadata{Component: &of}
	parts = slices.SortedFunc(slices.Values(parts), func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	parts = slices.CompactFunc(parts, func(a, b cdx.Component) bool { return a.BOMRef == b.BOMRef })
	bom.Components = &parts
	var text bytes.Buffer
	err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return text.Bytes(), err
}

// Modules are those that a program is made of, as its compiler has noted in it.
func Modules(program []byte) ([]cdx.Component, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil, err
	}
	parts := []cdx.Component{module("std", info.GoVersion)}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, module(m.Path, m.Version))
	}
	return parts, nil
}

// ModulesOf are those that a package is made of, for programs in which nothing is noted: those of WebAssembly.
func ModulesOf(ctx context.Context, dir, pkg string, env []string) ([]cdx.Component, error) {
	list := exec.CommandContext(ctx, "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", "./"+pkg)
	list.Dir, list.Env = dir, append(list.Environ(), env...)
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the modules of %s: %w", pkg, err)
	}
	parts := []cdx.Component{module("std", runtime.Version())}
	for line := range strings.Lines(string(out)) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			parts = append(parts, module(path, version))
		}
	}
	return parts, nil
}

func module(path, version string) cdx.Component {
	// By the specification of package URLs: in lower case.
	return Part(cdx.ComponentTypeLibrary, path, version, "pkg:golang/"+strings.ToLower(path)+"@"+Escape(version))
}

// Part is one that is known by a package URL.
func Part(kind cdx.ComponentType, name, version, url string) cdx.Component {
	return cdx.Component{BOMRef: url, Type: kind, Name: name, Version: version, PackageURL: url}
}

// Escape has what package URLs need escaped in a version. A colon stays.
func Escape(version string) string { return strings.ReplaceAll(version, "+", "%2B") }

// ImageContents is the name of the file that says what is in an image.
func ImageContents(image, version, platform string) string {
	return fmt.Sprintf("image_%s_%s_%s.cdx.json", image, strings.TrimPrefix(version, "v"), platform)
}
