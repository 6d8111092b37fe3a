package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// Before runc makes a container of a sandbox that is to be closed, its network is, and the daemon has heard whether it could be.
func TestCreateClosesTheNetwork(t *testing.T) {
	network := filepath.Join(directory(t), "net")
	if err := os.WriteFile(network, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const config = `{"process":{"env":[],"capabilities":{"bounding":["CAP_CHOWN","CAP_NET_RAW"]}},%s"linux":{"namespaces":[{"type":"network","path":%q}]}}`
	volume := `"mounts":[{"type":"bind","source":"/a","destination":"/shared","options":["rw"]}],`
	for name, tt := range map[string]struct {
		config string
		fails  error
		open   string
		raw    bool
	}{
		"closed":                {fmt.Sprintf(config, "", network), nil, "", false},
		"the kernel refuses":    {fmt.Sprintf(config, "", network), errors.New("no rules here"), "no rules here", false},
		"a volume":              {fmt.Sprintf(config, volume, network), nil, "/shared", true},
		"on the node's network": {fmt.Sprintf(config, "", "/proc/self/ns/net"), nil, "hostNetwork", true},
	} {
		t.Run(name, func(t *testing.T) {
			inner, heard, closed := &runc{}, make(chan *nodeapi.ClosedRequest, 1), ""
			socket := serve(t, func(s *grpc.Server) {
				nodeapi.RegisterSandboxesServer(s, daemon{describe: answer(&nodeapi.DescribeResponse{Closed: true}), closed: heard})
			})
			s := newService(inner, socket, "1")
			defer s.Close(t.Context())
			s.ClosesBy(func(namespace string) error { closed = namespace; return tt.fails })
			if _, err := s.Create(t.Context(), &taskAPI.CreateTaskRequest{ID: "a", Bundle: bundle(t, tt.config)}); err != nil {
				t.Fatal(err)
			}
			select {
			case r := <-heard:
				if r.GetSandbox() != "a" || !strings.Contains(r.GetOpen(), tt.open) || (r.GetOpen() == "") != (tt.open == "") {
					t.Errorf("told %v, want %q", r, tt.open)
				}
			default:
				t.Error("the daemon hears nothing before the container is made")
			}
			if raw := strings.Contains(inner.config, "CAP_NET_RAW"); raw != tt.raw {
				t.Errorf("made with %s", inner.config)
			}
			if want := !tt.raw; (closed == network) != want {
				t.Errorf("the network %q is closed", closed)
			}
		})
	}
}
