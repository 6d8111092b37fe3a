package functionapi_test

import (
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

// A sandbox is described with the place of its socket, which is there by then.
func TestASandboxNeedsASocket(t *testing.T) {
	r := newRig(t, nil)
	dir := filepath.Join(t.TempDir(), "instances")
	c := sandboxes.Config{Dir: dir, Providers: []sandboxes.Provider{r.Server}, Log: slog.New(slog.DiscardHandler)}
	set, err := sandboxes.OpenKubelet(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	p := &nodeapi.Pod{Namespace: "default", Name: "fire-x", Uid: "u-1"}
	d, err := set.Describe(t.Context(), &nodeapi.DescribeRequest{Sandbox: "a", Pod: p})
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "default_fire-x_u-1", "socket")
	want := &nodeapi.Mount{Source: socket, Destination: "/headstart/socket", ReadOnly: true}
	diff := cmp.Diff(want, d.GetMounts()[2], protocmp.Transform())
	if diff != "" || d.GetEnv()["HEADSTART_SOCKET"] != "/headstart/socket/headstart.sock" {
		t.Errorf("described as %v (-want +got):\n%s", d, diff)
	}
}
