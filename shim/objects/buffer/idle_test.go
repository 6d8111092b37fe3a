package buffer_test

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/staging"
)

// Each who asks hears of it, in whatever order they have asked: the later call may be of the earlier use.
func TestIdleTellsAll(t *testing.T) {
	b, err := buffer.Open(t.TempDir()+"/b", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	e, err := b.Create(buffer.NewID(), "ns/f", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.WriteAt([]byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	r := e.NewReader(t.Context())
	told := map[string]bool{}
	for _, use := range []string{"second", "first"} {
		e.Idle(func(bool) { told[use] = true })
	}
	_ = r.Close()
	if !told["first"] || !told["second"] {
		t.Errorf("told: %v", told)
	}
	e.Release()
}

// Whoever was promised to hear that nobody reads an entry hears it, or that it cannot be kept, when a copy was
// made meanwhile: else it counts for its function for good.
func TestIdleAfterACopy(t *testing.T) {
	shm, err := os.MkdirTemp("/dev/shm", "review")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shm)
	memory, err := buffer.OpenFiles(shm + "/b")
	if err != nil {
		t.Fatal(err)
	}
	disk, err := buffer.OpenFiles(t.TempDir() + "/d")
	if err != nil {
		t.Fatal(err)
	}
	b := buffer.New(buffer.Quota{}, buffer.Tier{Name: "memory", Limit: 1000, Medium: memory}, buffer.Tier{Name: "disk", Limit: 1000, Medium: disk})
	defer b.Close()
	e, err := b.Create(buffer.NewID(), "ns/f", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.WriteAt([]byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	if err := e.Complete(); err != nil {
		t.Fatal(err)
	}
	r := e.NewReader(context.Background())
	told := false
	e.Idle(func(bool) { told = true })
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := e.Link(t.Context(), &staging.Dir{Input: root}, "input"); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(r)
	_ = r.Close()
	if !told {
		t.Errorf("nobody hears of it; %+v", b.Tiers())
	}
	e.Release()
}
