//go:build integration

package buffer_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// A disk smaller than the limit shows before a byte is written, and nothing is left.
func TestFullDiskShowsAtOnce(t *testing.T) {
	b := open(t, mount(t, "tmpfs", "size=1m,mode=0700"), 1<<30)
	_, err := b.Create(id1, function, 2<<20)
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != "BufferFull" {
		t.Errorf("got %v", err)
	}
	if b.Used() != 0 {
		t.Errorf("%d bytes are used", b.Used())
	}
	e := create(t, b, id1, 1<<19)
	e.Release()
}

// A file system that cannot reserve blocks serves all the same.
func TestWithoutFallocate(t *testing.T) {
	b := open(t, mount(t, "ramfs", "mode=0700"), 10)
	e := create(t, b, id1, 3)
	write(t, e, "bc", 1)
	write(t, e, "a", 0)
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	check(t, []byte("abc"), e.NewReader(t.Context()))
	e.Release()
}

// A link cannot leave the buffer's file system, and says so.
func TestLinkToAnotherFileSystem(t *testing.T) {
	e := create(t, open(t, t.TempDir()+"/b", 10), id1, 0)
	defer e.Release()
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	if err := e.Link(openRoot(t, mount(t, "tmpfs", "")), "input"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("got %v", err)
	}
}

// mount returns a directory with a new file system. It needs root.
func mount(t *testing.T, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(kind, dir, kind, 0, options); err != nil {
		t.Fatalf("mounting %s, which needs root: %v", kind, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}
