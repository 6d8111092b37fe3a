package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// linked returns a program of this machine with the libraries that it is linked with, each in its place.
func linked(program string) ([]artifact.File, error) {
	out, err := exec.Command("ldd", program).Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the libraries of %s: %w", program, err)
	}
	paths := map[string]bool{program: true}
	for word := range strings.FieldsSeq(string(out)) {
		if filepath.IsAbs(word) {
			paths[filepath.Clean(word)] = true
		}
	}
	var files []artifact.File
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, artifact.File{Name: strings.TrimPrefix(path, "/"), Content: content, Mode: 0o755})
	}
	return files, nil
}
