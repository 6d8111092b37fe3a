//go:build cluster

package install_test

import (
	"os"
	"path/filepath"
	"testing"
)

// A containerd 2, from the directory HEADSTART_CLUSTER_BIN, reads all forms.
func TestContainerd2Reads(t *testing.T) {
	bin := os.Getenv("HEADSTART_CLUSTER_BIN")
	if bin == "" {
		t.Fatal("HEADSTART_CLUSTER_BIN has to name the directory of containerd 2")
	}
	testDump(t, filepath.Join(bin, "containerd"), "io.containerd.cri.v1.runtime", 3)
}
