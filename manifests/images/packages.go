package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// dpkg is where Debian's package manager has what it knows, below a root.
const dpkg = "var/lib/dpkg"

// packages are Debian's that the files of a system are of. Files of no package are named by themselves.
func packages(root, arch string, files []artifact.File) (parts []cdx.Component, err error) {
	versions, err := installed(root, arch)
	if err != nil {
		return nil, err
	}
	owners := map[string]string{}
	for name := range versions {
		for _, list := range []string{name + ":" + arch + ".list", name + ".list"} {
			text, err := os.ReadFile(filepath.Join(root, dpkg, "info", list))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for path := range strings.Lines(string(text)) {
				owners[merged(path)] = name
			}
		}
	}
	for _, f := range files {
		name, is := owners[merged(f.Name)]
		if !is {
			parts = append(parts, file(f))
			continue
		}
		parts = append(parts, artifact.Part(cdx.ComponentTypeLibrary, name, versions[name],
			fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", artifact.Escape(name), artifact.Escape(versions[name]), arch)))
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

// installed are the versions of a system's packages by their names; none where no dpkg is.
func installed(root, arch string) (map[string]string, error) {
	text, err := os.ReadFile(filepath.Join(root, dpkg, "status"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	versions := map[string]string{}
	for paragraph := range strings.SplitSeq(string(text), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if name, value, ok := strings.Cut(line, ": "); ok {
				fields[name] = strings.TrimSpace(value)
			}
		}
		if is := fields["Architecture"]; is == arch || is == "all" {
			versions[fields["Package"]] = fields["Version"]
		}
	}
	return versions, nil
}
