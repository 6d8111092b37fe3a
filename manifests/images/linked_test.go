package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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

// A link of a system leads to a file of that system, not of the one that reads it.
func TestLinksStayInTheSystem(t *testing.T) {
	program, err := exec.LookPath("tar")
	if err != nil {
		t.Fatal(err)
	}
	files, err := linked("/", program, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	put(t, root, files)
	outside := filepath.Join(t.TempDir(), "tar")
	if err := os.Rename(filepath.Join(root, program), outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(root, program)); err != nil {
		t.Fatal(err)
	}
	if _, err := linked(root, program, runtime.GOARCH); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a link out of the system: %v", err)
	}
	put(t, root, []artifact.File{{Name: outside, Content: []byte("#!/bin/sh\n# a program of that system, and of no machine, of some length\n")}})
	if _, err := linked(root, program, runtime.GOARCH); err == nil || !strings.Contains(err.Error(), "bad magic number") {
		t.Errorf("the link's target is not the system's own: %v", err)
	}
}

// Files are told by the packages that they are of, whichever way these name them, and by themselves if they are of none.
func TestPackages(t *testing.T) {
	root := t.TempDir()
	text := func(name, content string) artifact.File { return artifact.File{Name: name, Content: []byte(content)} }
	put(t, root, []artifact.File{
		text(dpkg+"/status", "Package: libc6\nArchitecture: amd64\nSource: glibc\nVersion: 2.36-9+deb12u10\n\n"+
			"Package: redis-server\nSource: redis (5:7.0.15)\nVersion: 5:7.0.15-1\nArchitecture: amd64\n\n"+
			"Package: libc6\nArchitecture: i386\nVersion: 1\n"),
		text("etc/os-release", "NAME=Debian\nVERSION_ID=\"12\"\nID=debian\n"),
		text(dpkg+"/info/libc6:amd64.list", "/.\n/lib/x86_64-linux-gnu/libc.so.6\n"),
		text(dpkg+"/info/redis-server.list", "/usr/bin/redis-server\n"),
	})
	parts, err := packages(root, "amd64", []artifact.File{
		text("usr/bin/redis-server", ""), text("usr/lib/x86_64-linux-gnu/libc.so.6", ""), text("opt/own", "own")})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		got = append(got, p.BOMRef)
	}
	want := []string{"pkg:deb/debian/redis-server@5:7.0.15-1?arch=amd64&distro=debian-12&upstream=redis",
		"pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12&upstream=glibc", "/opt/own"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if parts, err := packages(t.TempDir(), "amd64", []artifact.File{text("opt/own", "own")}); err != nil || len(parts) != 1 {
		t.Errorf("without dpkg: %+v, %v", parts, err)
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
