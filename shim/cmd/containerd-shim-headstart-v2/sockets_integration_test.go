//go:build integration

package main

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// A container sees its own directories in that of the pod's sockets. Its daemon cannot have them appear elsewhere, by
// links that it makes when they are checked, and shows nothing if they are links from the start.
func TestAttackOfTheDaemonBySockets(t *testing.T) {
	n := newNode(t)
	own := func(id string) string { return n.path("sandboxes/" + id) }
	const options = "ro,nosuid,nodev,noexec,relatime"
	seen := map[string]string{"/headstart/socket": options + " orders other", "/headstart/socket/orders": options + " mine"}
	// The daemon has moved the directory that was checked.
	moved := map[string]string{"/headstart/socket": options + " aside orders other", "/headstart/socket/aside": options + " mine"}
	want := map[string]map[string]string{"ours": seen, "swapped": moved, "link": nil, "none": nil}
	d := hostile{answers: map[string]*nodeapi.DescribeResponse{}}
	failed := os.MkdirAll(n.path("bin"), 0o755)
	for id := range want {
		failed = errors.Join(failed, os.MkdirAll(own(id)+"/orders/mine", 0o755), os.MkdirAll(own(id)+"/socket/other", 0o755))
		if id == "ours" || id == "swapped" {
			failed = errors.Join(failed, os.Mkdir(own(id)+"/socket/orders", 0o755))
		}
		d.answers[id] = &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{
			{Source: own(id) + "/socket", Destination: "/headstart/socket", ReadOnly: true},
			{Source: own(id) + "/orders", Destination: "/headstart/socket/orders", ReadOnly: true},
		}}
	}
	failed = errors.Join(failed, os.Symlink("/etc", own("link")+"/socket/orders"),
		n.beforeRunc(t, fmt.Sprintf(`case "$*" in *swapped) unshare -m sh -c '
			awk "\$5 ~ /headstart.socket/ {print \$5}" /proc/self/mountinfo | sort -r | xargs -n 1 umount -l
			mv %[1]s/orders %[1]s/aside && ln -s /etc %[1]s/orders' >&2 || kill $PPID ;; esac`, own("swapped")+"/socket")))
	if failed != nil {
		t.Fatal(failed)
	}
	n.serve(t, "node.sock", func(s *grpc.Server) { nodeapi.RegisterSandboxesServer(s, d) })
	for id, seen := range want {
		t.Run(id, func(t *testing.T) {
			s := n.sandbox(t, id)
			defer s.remove(t)
			got := s.view(t).Mounts
			if diff := cmp.Diff(seen, got); diff != "" && len(seen)+len(got) > 0 {
				t.Errorf("mounts (-want +got):\n%s", diff)
			}
		})
	}
	if left := mounts(t, n.path("state/io.containerd.runtime.v2.task")); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}
