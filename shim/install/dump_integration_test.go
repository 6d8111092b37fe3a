//go:build integration

package install_test

import "testing"

// Debian's containerd, 1.6, reads all forms up to version 2.
func TestContainerd1Reads(t *testing.T) {
	testDump(t, "containerd", "io.containerd.grpc.v1.cri", 2)
}
