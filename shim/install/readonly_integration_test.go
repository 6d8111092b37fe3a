//go:build integration

package install_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/headstart-mesh/headstart/shim/install/layout"
)

// Where /opt is read-only, nothing can be installed, and nothing else is changed either.
func TestAReadOnlyOptLeavesTheNodeAsItIs(t *testing.T) {
	root := plant(t, "containerd-2-confd")
	opt := filepath.Join(root, "opt")
	if err := os.MkdirAll(opt, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", opt, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(opt, 0); err != nil {
			t.Error(err)
		}
	})
	before := snapshot(t, root)
	r := newRig(t, root, "shim")
	r.node.ready = true
	err := r.Install(t.Context())
	if unsuited, is := errors.AsType[*layout.Unsuited](err); !is || !strings.Contains(unsuited.Error(), "read-only file system") {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff(before, snapshot(t, root)); d != "" || r.node.ready {
		t.Errorf("it is ready: %v; -before +after\n%s", r.node.ready, d)
	}
}
