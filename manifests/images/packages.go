package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	securefs "github.com/containerd/continuity/fs"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// dpkg is where Debian's package manager has what it knows, below a root.
const dpkg = "var/lib/dpkg"

// packages are Debian's that the files of a system are of. Files of no package are named by themselves.
func packages(root, arch string, files []artifact.File) (parts []cdx.Component, err error) {
	all, err := installed(root, arch)
	if err != nil {
		return nil, err
	}
	system, err := fields(root, "etc/os-release", "=")
	if err != nil {
		return nil, err
	}
	owners := map[string]deb{}
	for _, d := range all {
		for _, list := range []string{d.name + ":" + arch + ".list", d.name + ".list"} {
			text, err := os.ReadFile(filepath.Join(root, dpkg, "info", list))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for path := range strings.Lines(string(text)) {
				owners[merged(path)] = d
			}
		}
	}
	for _, f := range files {
		at, err := securefs.RootPath(root, f.Name) // of a link the bytes are its target's
		if err != nil {
			return nil, err
		}
		below, err := filepath.Rel(root, at)
		if err != nil {
			return nil, err
		}
		d, is := owners[merged(below)]
		if !is {
			parts = append(parts, file(f))
			continue
		}
		of, version := system[0]["ID"], strings.Trim(system[0]["VERSION_ID"], `"`)
		parts = append(parts, artifact.Part(cdx.ComponentTypeLibrary, d.name, d.version, fmt.Sprintf("pkg:deb/%s/%s@%s?arch=%s&distro=%[1]s-%[5]s&upstream=%[6]s",
			of, artifact.Escape(d.name), artifact.Escape(d.version), arch, version, artifact.Escape(d.source))))
	}
	return parts, nil
}

// merged is a path as all are where /lib is a link to /usr/lib: packages name their files by either.
func merged(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(path), "/"), "usr/")
}

// file is one that is of no package.
func file(f artifact.File) cdx.Component {
	return cdx.Component{BOMRef: "/" + f.Name, Type: cdx.ComponentTypeFile, Name: "/" + f.Name,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(f.Content))}}}
}

// deb is a package, with the name of the source that it is made of: that is what advisories are about.
type deb struct{ name, version, source string }

// installed are a system's packages of an architecture; none where no dpkg is.
func installed(root, arch string) (all []deb, err error) {
	paragraphs, err := fields(root, filepath.Join(dpkg, "status"), ": ")
	for _, p := range paragraphs {
		if is := p["Architecture"]; is == arch || is == "all" {
			source, _, _ := strings.Cut(cmp.Or(p["Source"], p["Package"]), " ") // its version may follow
			all = append(all, deb{p["Package"], p["Version"], source})
		}
	}
	return all, err
}

// fields are those of a file's paragraphs, one at least.
func fields(root, name, separator string) (paragraphs []map[string]string, err error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for paragraph := range strings.SplitSeq(string(text), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if name, value, ok := strings.Cut(line, separator); ok {
				fields[name] = strings.TrimSpace(value)
			}
		}
		paragraphs = append(paragraphs, fields)
	}
	return paragraphs, nil
}
