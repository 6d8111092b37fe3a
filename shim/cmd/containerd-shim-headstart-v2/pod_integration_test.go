//go:build integration

package main

import (
	"os"
	"testing"
)

// Debian's containerd, which takes the runtime's options from a file.
func TestPodOfContainerd1(t *testing.T) {
	options := t.TempDir() + "/options.toml"
	testPod(t, making{
		containerd: "containerd",
		config: `version = 2
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "` + pauseImage + `"
restrict_oom_score_adj = true
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%s/cni"
conf_dir = "%s/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "headstart"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.headstart]
runtime_type = "io.containerd.headstart.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.headstart.options]
ConfigPath = "` + options + `"
`,
		prepare: func(dir string) error {
			return os.WriteFile(options, []byte(`BinaryName = "`+dir+"/"+wrapper+`"`), 0o600)
		},
	})
}
