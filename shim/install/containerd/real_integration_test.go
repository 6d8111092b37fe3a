//go:build integration

package containerd_test

import "testing"

// Debian's containerd, 1.6.
func TestContainerd1(t *testing.T) {
	testAll(t, "containerd", `version = 2
root = "/run/containerd/root"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "`+pauseImage+`"
restrict_oom_score_adj = true
stream_server_port = "0"
`)
}
