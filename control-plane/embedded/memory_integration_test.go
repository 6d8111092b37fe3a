//go:build integration

package embedded

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A node's memory for inputs is a tmpfs, bounded by the kernel as well, and goes with the
// platform: at its end, and at the next start after a kill.
func TestMemoryIsSwept(t *testing.T) {
	p := platform(t)
	run := p.run("edge")
	mkdir(t, run)
	dir := filepath.Join(run, "memory")
	if err := mountMemory(run, 1<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // if the test fails
	var mounted unix.Statfs_t
	if err := unix.Statfs(dir, &mounted); err != nil || mounted.Type != unix.TMPFS_MAGIC || int64(mounted.Blocks)*mounted.Bsize != 1<<20 {
		t.Errorf("%+v, %v", mounted, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "input"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(filepath.Join(dir, "input")) // somebody still reads
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := p.sweepNodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(run); err != nil {
		t.Errorf("left: %v", err)
	}
}

func TestNoMemoryIsNoMount(t *testing.T) {
	run := t.TempDir()
	if err := mountMemory(run, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(run, "memory")); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
