//go:build cluster

package containerd_test

import (
	"os"
	"path/filepath"
	"testing"
)

// A containerd 2, from the directory HEADSTART_CLUSTER_BIN.
func TestContainerd2(t *testing.T) {
	bin := os.Getenv("HEADSTART_CLUSTER_BIN")
	if bin == "" {
		t.Fatal("HEADSTART_CLUSTER_BIN has to name the directory of containerd 2, runc and containerd-shim-runc-v2")
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	testAll(t, filepath.Join(bin, "containerd"), `version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
root = "/run/containerd/root"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "`+pauseImage+`"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
`)
}
