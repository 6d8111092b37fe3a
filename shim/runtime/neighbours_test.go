package runtime_test

import (
	"slices"
	"strings"
	"testing"

	taskAPI "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/wiretest"
)

// An update replaces the shim before the daemon, and a sandbox keeps its shim while daemons
// come and go: each works with the other's version before and after its own.
func TestDaemonsOfOtherVersions(t *testing.T) {
	source := ownDirectory(t, "default_fire-x_u-1")
	description := func() *nodeapi.DescribeResponse {
		return &nodeapi.DescribeResponse{Mounts: []*nodeapi.Mount{{
			Source: source, Destination: "/headstart/input", ReadOnly: true,
		}},
			Env: map[string]string{"HEADSTART_INPUT_DIR": "/headstart/input"}}
	}
	withoutGone := nodeapi.Sandboxes_ServiceDesc
	withoutGone.Methods = slices.DeleteFunc(
		slices.Clone(withoutGone.Methods), func(m grpc.MethodDesc) bool { return m.MethodName == "Gone" },
	)
	tests := map[string]struct {
		serves grpc.ServiceDesc
		says   *nodeapi.DescribeResponse
	}{
		"an older one, which hears of no ends": {withoutGone, description()},
		"a newer one, which says more":         {nodeapi.Sandboxes_ServiceDesc, wiretest.Newer(description())},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inner := &runc{}
			s := newService(
				inner,
				serve(t, func(g *grpc.Server) { g.RegisterService(&tt.serves, daemon{describe: answer(tt.says)}) }),
				"test",
			)
			ctx, hook := logged(t)
			if _, err := s.Create(ctx, &taskAPI.CreateTaskRequest{
				ID: "a", Bundle: bundle(t, `{"process":{},`+ofPod[1:]),
			}); err != nil {
				t.Fatal(err)
			}
			if inner.input != source || !strings.Contains(
				inner.config, `"HEADSTART_INPUT_DIR=/headstart/input"`,
			) {
				t.Errorf("runc saw %s, without what the daemon described", inner.config)
			}
			if _, err := s.Delete(ctx, &taskAPI.DeleteRequest{ID: "a"}); err != nil {
				t.Error(err)
			}
			if err := s.Close(ctx); err != nil {
				t.Error(err)
			}
			for _, entry := range hook.AllEntries() {
				if entry.Level < logrus.DebugLevel {
					t.Errorf("logged %q", entry.Message)
				}
			}
		})
	}
}
