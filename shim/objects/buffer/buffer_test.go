package buffer_test

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const (
	id1 = "00000000000000000000000000000001"
	id2 = "00000000000000000000000000000002"

	function = "default/f"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOpenSweepsWhatWasLeft(t *testing.T) {
	dir := t.TempDir() + "/made/on/demand"
	if err := os.MkdirAll(filepath.Join(dir, id2), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{id1, "of-the-operator", strings.ToUpper("a") + id1[1:]} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, 1)
	if got := names(t, dir); got != id2+" A0000000000000000000000000000001 of-the-operator" {
		t.Errorf("left are %s", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	taken := t.TempDir() + "/taken"
	open(t, taken, 1)
	shared := t.TempDir() + "/shared"
	if err := os.Mkdir(shared, 0o755); err != nil {
		t.Fatal(err)
	}
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{taken: "another process", shared: "mode 0755", file: "not a directory"} {
		if _, err := buffer.Open(dir, 1); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestOpenIsPrivate(t *testing.T) {
	dir := t.TempDir() + "/b"
	b := open(t, dir, 10)
	create(t, b, id1, 10)
	for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Join(dir, id1): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode().Perm(), want)
		}
	}
}

func TestCreateKeepsToTheLimit(t *testing.T) {
	dir := t.TempDir() + "/b"
	b := open(t, dir, 10)
	first := create(t, b, id1, 7)
	_, err := b.Create(id2, function, 4)
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != "BufferFull" || p.Status != http.StatusInsufficientStorage || !buffer.IsFull(err) {
		t.Errorf("got %v", err)
	}
	if b.Used() != 7 {
		t.Errorf("%d bytes are used, want 7", b.Used())
	}
	first.Release()
	if b.Used() != 0 || names(t, dir) != "" {
		t.Errorf("after the release %d bytes are used, and there are %q", b.Used(), names(t, dir))
	}
	create(t, b, id2, 10)
	if b.Used() != 10 {
		t.Errorf("%d bytes are used, want 10", b.Used())
	}
}

func TestCreateRefuses(t *testing.T) {
	b := open(t, t.TempDir()+"/b", 10)
	create(t, b, id1, 1)
	for _, in := range []struct {
		id   string
		size int64
	}{{id2, -2}, {id1, 1}, {"", 1}, {"../" + id2[3:], 1}, {id2 + "\n", 1}, {strings.ToUpper("a") + id1[1:], 1}} {
		if _, err := b.Create(in.id, function, in.size); err == nil {
			t.Errorf("%q of %d bytes is created", in.id, in.size)
		}
	}
	if b.Used() != 1 {
		t.Errorf("%d bytes are used, want 1", b.Used())
	}
}

func TestCloseEndsEverything(t *testing.T) {
	dir := t.TempDir() + "/b"
	b, err := buffer.Open(dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	e := create(t, b, id1, 1)
	r := e.NewReader(t.Context())
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("reading goes on")
	}
	if _, err := b.Create(id2, function, 1); err == nil {
		t.Error("creating goes on")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	e.Release()
	if names(t, dir) != "" || b.Used() != 0 {
		t.Errorf("left are %q and %d bytes", names(t, dir), b.Used())
	}
	again, err := buffer.Open(dir, 10)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// FuzzNames: no identifier and no name leads out of its directory, or to a file that is
// somebody else's.
func FuzzNames(f *testing.F) {
	f.Add(id1, "input.mjpeg")
	f.Add("../"+id1[3:], "../x")
	f.Add(id1, "/etc/passwd")
	f.Add(id1, "")
	f.Add(id1, ".")
	f.Add(id1, "a\x00b")
	f.Fuzz(func(t *testing.T, id, name string) {
		top := t.TempDir()
		b := open(t, top+"/b", 1)
		links := openRoot(t, top+"/links")
		e, err := b.Create(id, function, 1)
		if err == nil {
			write(t, e, "x", 0)
			if err := e.Complete(); err != nil {
				t.Fatal(err)
			}
			err := e.Link(t.Context(), links, name)
			if got := names(t, top+"/links"); err == nil && got != name || err != nil && got != "" {
				t.Errorf("linking as %q: %v, and there are %q", name, err, got)
			}
			if names(t, top+"/b") != id {
				t.Errorf("%q became %q", id, names(t, top+"/b"))
			}
			e.Release()
		}
		if names(t, top) != "b links" || names(t, top+"/b") != "" {
			t.Errorf("%q and %q leave %q and %q", id, name, names(t, top), names(t, top+"/b"))
		}
	})
}

func open(t *testing.T, dir string, limit int64) *buffer.Buffer {
	t.Helper()
	b, err := buffer.Open(dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func create(t *testing.T, b *buffer.Buffer, id string, size int64) *buffer.Entry {
	t.Helper()
	e, err := b.Create(id, function, size)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func openRoot(t *testing.T, dir string) *staging.Dir {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return &staging.Dir{Input: root}
}

// names returns what lies in dir, in order.
func names(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		all = append(all, file.Name())
	}
	return strings.Join(all, " ")
}
