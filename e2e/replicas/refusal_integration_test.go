//go:build integration

package replicas

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"github.com/google/go-cmp/cmp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/headstart-mesh/headstart/control-plane/routing"
)

// What a gateway refuses of what its node's daemon tells it is in the status of all control planes,
// also of one that begins anew, until the gateway is gone.
func TestARefusalIsInTheStatus(t *testing.T) {
	b := newBed(t)
	b.connected(2)
	n := b.nodes[0]
	conn, err := grpc.NewClient("unix:"+filepath.Join(n.dir, "gateway", "gateway.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, leave := context.WithTimeout(t.Context(), patience)
	defer leave()
	key, err := os.ReadFile(filepath.Join(n.dir, "gateway", "key"))
	if err != nil {
		t.Fatal(err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "x-headstart-key", string(key))
	gateway, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const function = functions + "/" + hot
	say := func(r *discovery.DeltaDiscoveryRequest) {
		t.Helper()
		if err := gateway.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	say(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "hostile"}, ResourceNamesSubscribe: []string{function + ":80"}})
	told, err := gateway.Recv()
	if err != nil {
		t.Fatal(err)
	}
	say(&discovery.DeltaDiscoveryRequest{ResponseNonce: told.GetNonce(), ErrorDetail: &rpcstatus.Status{Message: "no room\x1b[2J"}})
	shows := func(want ...routing.Problem) {
		t.Helper()
		for _, p := range b.controlPlanes {
			b.eventually(fmt.Sprintf("%s shows %d refusals", p.name, len(want)), func() error {
				s, err := b.status(p)
				if err != nil {
					return err
				}
				s.Routing = slices.DeleteFunc(
					s.Routing, func(p routing.Problem) bool { return !strings.Contains(p.Message, "refused") },
				)
				if d := cmp.Diff(want, s.Routing); len(want)+len(s.Routing) > 0 && d != "" {
					return fmt.Errorf("%s", d)
				}
				return nil
			})
		}
	}
	refused := routing.Problem{Function: function, Gateways: []string{n.name},
		Message: "a gateway there refused ClusterLoadAssignment " + function + ":80, and keeps what it has: no room\ufffd[2J"}
	shows(refused)
	leader, _ := b.roles()
	leader.end(syscall.SIGKILL)
	b.startControlPlane(leader)
	shows(refused)
	leave()
	shows()
}
