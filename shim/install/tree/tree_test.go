package tree_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/install/tree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a tree, the directory that it is, and one beside it.
func open(t *testing.T) (tr *tree.Tree, root, outside string) {
	t.Helper()
	root, outside = t.TempDir(), t.TempDir()
	tr, err := tree.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr, root, outside
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// Links are the node's: absolute ones begin at its root, and none leads out of it.
func TestLinksStayInside(t *testing.T) {
	tr, root, outside := open(t)
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("outside"), 0o600),
		os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "absolute")),
		os.Symlink("../../../../../../../../.."+filepath.Join(outside, "secret"), filepath.Join(root, "relative")),
		os.Symlink(outside, filepath.Join(root, "dir")),
		os.Mkdir(filepath.Join(root, "etc"), 0o755),
		os.WriteFile(filepath.Join(root, "etc", "real"), []byte("inside"), 0o600),
		os.Symlink("/etc/real", filepath.Join(root, "etc", "link")),
		os.Symlink("loop", filepath.Join(root, "loop")))
	for _, p := range []string{"/absolute", "/relative", "/dir/secret"} {
		if f, err := tr.Read(p, 100); err == nil {
			t.Errorf("%s reads %q from outside", p, f.Data)
		}
		if err := tr.Write(p, tree.File{Data: []byte("x"), Mode: 0o600}); err == nil {
			t.Errorf("%s was written", p)
		}
	}
	if data, err := os.ReadFile(filepath.Join(outside, "secret")); string(data) != "outside" || err != nil {
		t.Errorf("outside there is %q, %v", data, err)
	}
	if f, err := tr.Read("/etc/link", 100); string(f.Data) != "inside" || err != nil {
		t.Errorf("an absolute link reads %q, %v", f.Data, err)
	}
	must(t, tr.Write("/etc/link", tree.File{Data: []byte("new"), Mode: 0o640}))
	if target, err := os.Readlink(filepath.Join(root, "etc", "link")); target != "/etc/real" || err != nil {
		t.Errorf("writing replaced the link: %q, %v", target, err)
	}
	if _, err := tr.Resolve("/loop"); err == nil {
		t.Error("a loop was resolved")
	}
}

func TestWriteReplacesInOneStep(t *testing.T) {
	tr, root, _ := open(t)
	must(t, tr.Write("/file", tree.File{Data: []byte("old"), Mode: 0o755}))
	opened, err := os.Open(filepath.Join(root, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	must(t, tr.Write("/file", tree.File{Data: []byte("new"), Mode: 0o600}))
	text := make([]byte, 3)
	if _, err := opened.Read(text); string(text) != "old" || err != nil {
		t.Errorf("who had it open reads %q, %v; want the old one", text, err)
	}
	f, err := tr.Read("/file", 100)
	if string(f.Data) != "new" || f.Mode != 0o600 || err != nil {
		t.Errorf("%q, %v, %v; want the new one, private", f.Data, f.Mode, err)
	}
	if names, err := tr.List("/"); len(names) != 1 || err != nil {
		t.Errorf("left are %v, %v", names, err)
	}
}

func TestReadIsBounded(t *testing.T) {
	tr, root, _ := open(t)
	must(t, os.WriteFile(filepath.Join(root, "large"), make([]byte, 101), 0o600), syscall.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	if _, err := tr.Read("/large", 100); !errors.Is(err, tree.ErrTooLarge) || !strings.Contains(err.Error(), "/large") {
		t.Errorf("error %v, want %v with the name", err, tree.ErrTooLarge)
	}
	if _, err := tr.Read("/fifo", 100); err == nil {
		t.Error("a FIFO was read")
	}
	if _, err := tr.Read("/none", 100); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want %v", err, fs.ErrNotExist)
	}
}

func TestOneInstallerAtATime(t *testing.T) {
	tr, root, _ := open(t)
	other, err := tree.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	unlock, err := tr.Lock()
	must(t, err)
	if _, err := other.Lock(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("a second lock: %v, want %v", err, unix.EWOULDBLOCK)
	}
	must(t, unlock())
	unlock, err = other.Lock()
	must(t, err)
	must(t, unlock())
}
