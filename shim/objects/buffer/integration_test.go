//go:build integration

package buffer_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/staging"
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
	if err := e.Link(t.Context(), openRoot(t, mount(t, "tmpfs", "")), "input"); !errors.Is(err, unix.EXDEV) {
		t.Errorf("got %v", err)
	}
}

// An entry in memory is a file in the sandbox by a second directory there, and in one that
// was started without it by a copy on the disk.
func TestLinkOfAnEntryInMemory(t *testing.T) {
	tmpfs, disk := mount(t, "tmpfs", "size=4m,mode=0700"), t.TempDir()
	inMemory, err := buffer.OpenFiles(tmpfs + "/buffer")
	if err != nil {
		t.Fatal(err)
	}
	onDisk, err := buffer.OpenFiles(disk + "/buffer")
	if err != nil {
		t.Fatal(err)
	}
	b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "memory", Limit: 1 << 20, Medium: inMemory}, buffer.Tier{Name: "disk", Limit: 10, Medium: onDisk})
	defer b.Close()
	memory, err := staging.OpenMemory(tmpfs + "/instances")
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if err := memory.Make("one"); err != nil {
		t.Fatal(err)
	}
	e := create(t, b, id1, 6)
	write(t, e, "frames", 0)
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}

	with := openRoot(t, disk+"/with")
	if with.Memory, err = memory.Open("one"); err != nil {
		t.Fatal(err)
	}
	defer with.Memory.Close()
	if err := e.Link(t.Context(), with, "request"); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(disk + "/with/request"); err != nil || to != staging.MemoryMount+"/request" {
		t.Errorf("the name leads to %s, %v", to, err)
	}
	file := memory.Path("one") + "/request"
	if got, err := os.ReadFile(file); err != nil || string(got) != "frames" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o444 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if got := usage(b); got != "6/1 0/0" {
		t.Errorf("the tiers have %s", got)
	}

	without := openRoot(t, disk+"/without")
	if err := e.Link(t.Context(), without, "request"); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(disk + "/without/request"); err != nil || string(got) != "frames" {
		t.Errorf("the copy has %q, %v", got, err)
	}
	if got := usage(b); got != "6/1 6/1" {
		t.Errorf("the tiers have %s", got)
	}
	if err := errors.Join(with.Remove("request"), without.Remove("request")); err != nil {
		t.Error(err)
	}
	e.Release()
	if left := names(t, tmpfs+"/buffer") + names(t, tmpfs+"/instances/one") + names(t, disk+"/buffer") + names(t, disk+"/with"); left != "" || b.Used() != 0 {
		t.Errorf("left are %s and %d bytes", left, b.Used())
	}
}

// A tmpfs that is smaller than its tier's limit, or that others fill, is no reason to refuse
// what the disk has room for.
func TestFullMemoryGoesToTheDisk(t *testing.T) {
	inMemory, err := buffer.OpenFiles(mount(t, "tmpfs", "size=1m,mode=0700"))
	if err != nil {
		t.Fatal(err)
	}
	onDisk, err := buffer.OpenFiles(t.TempDir() + "/b")
	if err != nil {
		t.Fatal(err)
	}
	b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "memory", Limit: 1 << 30, Medium: inMemory}, buffer.Tier{Name: "disk", Limit: 1 << 30, Medium: onDisk})
	defer b.Close()
	known, grows := create(t, b, id1, 2<<20), create(t, b, id2, buffer.Unknown)
	if got := usage(b); got != "0/0 2097152/1" {
		t.Errorf("the tiers have %s", got)
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	write(t, grows, string(content[:1000]), 0)
	write(t, grows, string(content[1000:]), 1000)
	if err := grows.Complete(); err != nil {
		t.Fatal(err)
	}
	check(t, content, grows.NewReader(t.Context()))
	known.Release()
	grows.Release()
	if b.Used() != 0 {
		t.Errorf("%d bytes are used", b.Used())
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
