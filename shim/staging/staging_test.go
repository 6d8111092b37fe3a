package staging_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/staging"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// elsewhere is the hard link of a file that is on the file system of only.
func elsewhere(only *os.Root) func(*os.Root) error {
	return func(dir *os.Root) error {
		if dir != only {
			return unix.EXDEV
		}
		return dir.WriteFile("one", []byte("frames"), 0o444)
	}
}

// A file has its name where it can be, and the sandbox always finds it by the same one.
func TestPlace(t *testing.T) {
	input, memory := t.TempDir(), t.TempDir()
	d := &staging.Dir{Input: open(t, input), Memory: open(t, memory)}
	defer d.Close()

	if err := d.Place("one", elsewhere(d.Input)); err != nil {
		t.Fatal(err)
	}
	if got := append(names(t, input), names(t, memory)...); !slices.Equal(got, []string{"one"}) {
		t.Errorf("on the disk: %v", got)
	}
	if err := d.Remove("one"); err != nil {
		t.Error(err)
	}

	if err := d.Place("one", elsewhere(d.Memory)); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(input, "one")); err != nil || to != "/headstart/memory/one" {
		t.Errorf("in memory: %s, %v", to, err)
	}
	if content, err := os.ReadFile(filepath.Join(memory, "one")); err != nil || string(content) != "frames" {
		t.Errorf("in memory: %q, %v", content, err)
	}
	if err := d.Remove("one"); err != nil {
		t.Error(err)
	}

	if err := d.Place("one", elsewhere(nil)); !errors.Is(err, unix.EXDEV) {
		t.Errorf("elsewhere: %v", err)
	}
	if got := append(names(t, input), names(t, memory)...); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// The inputs of each name have a directory of their own, on the disk and in memory.
func TestNamedInputs(t *testing.T) {
	named, memory := t.TempDir(), t.TempDir()
	d := &staging.Dir{Input: open(t, t.TempDir()), Named: open(t, named), Memory: open(t, memory)}
	defer d.Close()
	if own, err := d.For(""); own != d || err != nil {
		t.Errorf("without a name: %v, %v", own, err)
	}
	mask, err := d.For("mask")
	if err != nil {
		t.Fatal(err)
	}
	if err := mask.Place("one", elsewhere(mask.Memory)); err != nil {
		t.Fatal(err)
	}
	path := staging.Path("mask", "one")
	to, err := os.Readlink(filepath.Join(named, strings.TrimPrefix(path, staging.NamedMount)))
	if err != nil || !strings.HasPrefix(path, "/headstart/inputs/mask/") {
		t.Fatalf("%s: %v", path, err)
	}
	content, err := os.ReadFile(filepath.Join(memory, strings.TrimPrefix(to, staging.MemoryMount)))
	if err != nil || string(content) != "frames" {
		t.Errorf("%s leads to %s: %q, %v", path, to, content, err)
	}
	if err := mask.Remove("one"); err != nil {
		t.Error(err)
	}
	if got := append(
		names(t, filepath.Join(named, "mask")), names(t, filepath.Join(memory, "inputs", "mask"))...,
	); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if of, err := (&staging.Dir{Input: d.Input}).For("mask"); of != nil || err != nil {
		t.Errorf("of a sandbox without: %v, %v", of, err)
	}
}

// No name leads out of the sandbox's own directories.
func TestNamesLeadNowhereElse(t *testing.T) {
	for _, name := range []string{"..", "../precious", "/etc", "a/../../precious", "a\x00", "."} {
		top := t.TempDir()
		for _, dir := range []string{"input", "inputs", "memory", "precious"} {
			if err := os.Mkdir(filepath.Join(top, dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		d := &staging.Dir{Input: open(t, filepath.Join(top, "input")), Named: open(t, filepath.Join(top, "inputs")),
			Memory: open(t, filepath.Join(top, "memory"))}
		if of, err := d.For(name); err == nil {
			_ = of.Place("one", elsewhere(of.Memory))
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if left := append(names(t, filepath.Join(top, "precious")), names(t, top)[4:]...); len(left) != 0 {
			t.Errorf("%q leaves %v", name, left)
		}
	}
}

// A name that is taken stays whose it is.
func TestPlaceTwice(t *testing.T) {
	input, memory := t.TempDir(), t.TempDir()
	d := &staging.Dir{Input: open(t, input), Memory: open(t, memory)}
	defer d.Close()
	if err := os.WriteFile(filepath.Join(input, "one"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := d.Place("one", elsewhere(d.Memory)); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
	if got := names(t, memory); len(got) != 0 {
		t.Errorf("in memory is %v", got)
	}
}

// Without a directory in memory there is nothing to lead to.
func TestPlaceWithoutMemory(t *testing.T) {
	d := &staging.Dir{Input: open(t, t.TempDir())}
	defer d.Close()
	if err := d.Place("one", elsewhere(nil)); !errors.Is(err, unix.EXDEV) {
		t.Errorf("got %v", err)
	}
	if err := d.Clear(); err != nil {
		t.Error(err)
	}
}

// What a killed daemon left goes, and nothing that its names lead to.
func TestClear(t *testing.T) {
	input, memory, outside := t.TempDir(), t.TempDir(), t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(outside, "precious"), nil, 0o600), os.Symlink(outside, filepath.Join(input, "one")),
		os.WriteFile(filepath.Join(memory, "two"), nil, 0o444), os.MkdirAll(filepath.Join(memory, "three", "four"), 0o700)); err != nil {
		t.Fatal(err)
	}
	d := &staging.Dir{Input: open(t, input), Memory: open(t, memory)}
	defer d.Close()
	if err := d.Clear(); err != nil {
		t.Fatal(err)
	}
	if got := append(names(t, input), names(t, memory)...); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if got := names(t, outside); len(got) != 1 {
		t.Errorf("outside is %v", got)
	}
}

func TestMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory", "instances")
	m, err := staging.OpenMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, name := range []string{"one", "two"} {
		if err := m.Make(name); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("all may look into it: %v, %v", info, err)
	}
	if info, err := os.Stat(m.Path("one")); err != nil || info.Mode().Perm() != 0o755 || m.Path("one") != filepath.Join(path, "one") {
		t.Errorf("the function cannot read it: %v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(path, "two", "request"), nil, 0o444); err != nil {
		t.Fatal(err)
	}
	if root, err := m.Open("three"); root != nil || err != nil || m.Path("three") != "" {
		t.Errorf("one that was never made: %v, %v, %s", root, err, m.Path("three"))
	}
	if err := m.Clear(); err != nil || len(names(t, filepath.Join(path, "two"))) != 0 {
		t.Errorf("left: %v, %v", names(t, filepath.Join(path, "two")), err)
	}
	if err := m.Sweep(func(name string) bool { return name == "two" }); err != nil || !slices.Equal(names(t, path), []string{"two"}) {
		t.Errorf("left: %v, %v", names(t, path), err)
	}
	if err := m.Remove("two"); err != nil || len(names(t, path)) != 0 {
		t.Errorf("left: %v, %v", names(t, path), err)
	}
	if err := m.Remove("two"); err != nil {
		t.Error(err)
	}
}

// Names from outside reach nothing beyond it.
func FuzzMemoryNames(f *testing.F) {
	for _, name := range []string{"one", "..", "../precious", "/etc", "a/../../precious", "a\x00", "."} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		top := t.TempDir()
		precious := filepath.Join(top, "precious", "x")
		if err := os.MkdirAll(precious, 0o700); err != nil {
			t.Fatal(err)
		}
		m, err := staging.OpenMemory(filepath.Join(top, "instances"))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		_ = m.Make(name)
		if root, err := m.Open(name); err == nil && root != nil {
			_ = root.Close()
		}
		_ = m.Remove(name)
		if !slices.Equal(names(t, top), []string{"instances", "precious"}) || !slices.Equal(names(t, filepath.Join(top, "precious")), []string{"x"}) {
			t.Errorf("%q leaves %v and %v", name, names(t, top), names(t, filepath.Join(top, "precious")))
		}
	})
}

// A node without memory for inputs has none for anybody.
func TestNoMemory(t *testing.T) {
	var m *staging.Memory
	root, err := m.Open("one")
	if err := errors.Join(err, m.Make("one"), m.Remove("one"), m.Clear(), m.Sweep(nil)); err != nil || root != nil || m.Path("one") != "" {
		t.Errorf("%v, %v, %s", err, root, m.Path("one"))
	}
	m.Close()
}
