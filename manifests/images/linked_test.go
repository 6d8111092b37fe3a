package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/manifests/artifact"
)

// A program of this machine runs where there is nothing but it and what it is linked with.
func TestAProgramRunsWithWhatItIsLinkedWith(t *testing.T) {
	program, err := exec.LookPath("tar") // it needs some libraries
	if err != nil {
		t.Fatal(err)
	}
	files, err := linked("/", program, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Errorf("they are %d files: the program, what loads it, and the C library are missing", len(files))
	}
	alone := t.TempDir()
	put(t, alone, files)
	// The program's own loader, told to look nowhere else.
	var loader string
	dirs := map[string]bool{}
	for _, f := range files {
		if strings.HasPrefix(filepath.Base(f.Name), "ld-linux") {
			loader = filepath.Join(alone, f.Name)
		}
		dirs[filepath.Join(alone, filepath.Dir(f.Name))] = true
	}
	var path []string
	for dir := range dirs {
		path = append(path, dir)
	}
	list, err := exec.CommandContext(t.Context(), loader, "--inhibit-cache", "--library-path", strings.Join(path, ":"), "--list",
		filepath.Join(alone, program)).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, list)
	}
	for line := range strings.Lines(string(list)) {
		if strings.Contains(line, ".so") && !strings.Contains(line, alone) && !strings.Contains(line, "linux-vdso") {
			t.Errorf("it needs what is not there: %s", line)
		}
	}
}

func put(t *testing.T, root string, files []artifact.File) {
	t.Helper()
	for _, f := range files {
		to := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, f.Content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAProgramThatCannotBeLinked(t *testing.T) {
	program, err := exec.LookPath("tar")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	without := t.TempDir()
	put(t, without, []artifact.File{{Name: "bin/tar", Content: content},
		{Name: "bin/text", Content: []byte("#!/bin/sh\necho this is no program of a machine, but text of some length\n")}})
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for _, c := range []struct{ program, arch, want string }{
		{"/bin/tar", runtime.GOARCH, "it is in none of " + without},
		{"/bin/tar", other, "is for another machine"},
		{"/bin/tar", "mips", "of the architectures amd64 and arm64"},
		{"/bin/text", runtime.GOARCH, "bad magic number"},
		{"/bin/none", runtime.GOARCH, "no such file"},
	} {
		if _, err := linked(without, c.program, c.arch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: %v, want %q", c.program, c.arch, err, c.want)
		}
	}
}
