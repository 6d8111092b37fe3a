package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securefs "github.com/containerd/continuity/fs"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// libraryDirs are where systems have the libraries that programs are linked with, below a root.
var libraryDirs = []string{"lib/*-linux-gnu", "usr/lib/*-linux-gnu", "lib64", "usr/lib64", "lib", "usr/lib"}

// machines are the architectures of programs, by their names in an image's platform.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// linked returns a program of the system whose root is a directory, with the libraries that it is linked with, each in its place.
func linked(root, program, arch string) ([]artifact.File, error) {
	machine, is := machines[arch]
	if !is {
		return nil, fmt.Errorf("programs for %s cannot be told from others; of the architectures amd64 and arm64 they can", arch)
	}
	paths := map[string]bool{}
	var add func(path string) error
	add = func(path string) error {
		if paths[path] {
			return nil
		}
		paths[path] = true
		needs, err := needs(root, path, machine)
		if err != nil {
			return err
		}
		for _, name := range needs {
			found, err := find(root, name, machine)
			if err != nil {
				return fmt.Errorf("%s needs %s: %w", path, name, err)
			}
			if err := add(found); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(filepath.Join("/", program)); err != nil {
		return nil, err
	}
	var files []artifact.File
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		at, err := securefs.RootPath(root, path)
		if err != nil {
			return nil, err
		}
		content, err := os.ReadFile(at)
		if err != nil {
			return nil, err
		}
		files = append(files, artifact.File{Name: strings.TrimPrefix(path, "/"), Content: content, Mode: 0o755})
	}
	return files, nil
}

// errOtherMachine is said of a file that is no program or library for the machine.
var errOtherMachine = errors.New("is for another machine")

// needs are what a program or library below a root is linked with: names, and the path of what loads them.
func needs(root, path string, machine elf.Machine) ([]string, error) {
	at, err := securefs.RootPath(root, path) // links of a system lead to files of that system
	if err != nil {
		return nil, err
	}
	f, err := elf.Open(at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != machine {
		return nil, fmt.Errorf("%s %w: %s, not %s", path, errOtherMachine, f.Machine, machine)
	}
	all, err := f.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			loader, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, strings.TrimRight(string(loader), "\x00"))
		}
	}
	return all, nil
}

// find returns the path of a library for the machine below the root.
func find(root, name string, machine elf.Machine) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	for _, dir := range libraryDirs {
		paths, err := filepath.Glob(filepath.Join(root, dir, name))
		if err != nil {
			return "", err
		}
		for _, path := range paths {
			below, err := filepath.Rel(root, path)
			if err != nil {
				return "", err
			}
			switch _, err := needs(root, below, machine); {
			case err == nil:
				return filepath.Join("/", below), nil
			case !errors.Is(err, errOtherMachine) && !errors.Is(err, fs.ErrNotExist):
				return "", err
			}
		}
	}
	return "", fmt.Errorf("it is in none of %s/{%s}", strings.TrimSuffix(root, "/"), strings.Join(libraryDirs, ","))
}
