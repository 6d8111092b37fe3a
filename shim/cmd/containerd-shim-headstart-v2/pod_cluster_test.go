//go:build cluster

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A containerd 2, from the directory HEADSTART_CLUSTER_BIN, which sends the runtime's
// options itself.
func TestPodOfContainerd2(t *testing.T) {
	bin := os.Getenv("HEADSTART_CLUSTER_BIN")
	if bin == "" {
		t.Fatal("HEADSTART_CLUSTER_BIN has to name the directory of containerd 2 and runc")
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	testPod(t, making{
		containerd: filepath.Join(bin, "containerd"),
		config: `version = 3
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "` + pauseImage + `"
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["%s/cni"]
conf_dir = "%s/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.headstart]
runtime_type = "io.containerd.headstart.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.headstart.options]
BinaryName = "%s/` + wrapper + `"
`,
	})
}
