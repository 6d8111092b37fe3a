//go:build integration

package inputs

import (
	"bytes"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Memory that is a disk would be no gain: the daemon says so, and goes on without.
func TestMemoryNeedsATmpfs(t *testing.T) {
	c := withDirectories(t)
	c.Memory = 1 << 20
	if err := os.MkdirAll(c.RunDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("ramfs", c.RunDir, "ramfs", 0, ""); err != nil {
		t.Fatalf("mounting, which needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(c.RunDir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	var said bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&said, nil))
	i, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if got := tierNames(i); !slices.Equal(got, []string{"disk"}) || i.Memory != nil || !strings.Contains(
		said.String(), "not on a tmpfs",
	) {
		t.Errorf("it has %v, and says %s", got, said.String())
	}
}
