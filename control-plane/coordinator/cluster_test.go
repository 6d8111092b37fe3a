package coordinator

import (
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/platform/kube"
)

// A control plane that has just begun knows where instances are, and not how far: gateways,
// which go on with what they have, are not told to send requests everywhere. But they are not
// kept waiting for ever, nor for what needs no knowledge.
func TestAFreshControlPlaneWaitsForDistances(t *testing.T) {
	in := func(node, address string) platform.Instance {
		return platform.Instance{
			ID: node, Function: "default/fire", Node: node, Phase: platform.Ready,
			Address: netip.MustParseAddrPort(address),
		}
	}
	functions := []platform.Function{{Name: "default/fire", ServicePort: 80}}
	one := platform.State{Functions: functions, Instances: []platform.Instance{in("edge", "10.0.0.1:80")}}
	two := platform.State{
		Functions: functions, Instances: []platform.Instance{in("edge", "10.0.0.1:80"), in("cloud", "10.0.1.1:80")},
	}
	for name, c := range map[string]struct {
		state platform.State
		after time.Duration
		want  bool
	}{
		"one endpoint":                {one, 0, true},
		"two endpoints":               {two, 0, false},
		"a while later":               {two, distancesWithin - time.Second, false},
		"when patience is at its end": {two, distancesWithin, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients := kube.Clients{
					Kubernetes: fake.NewClientset(), Dynamic: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()),
				}
				cp := NewCluster(clients, ClusterConfig{}, Parts{
					Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
				})
				cp.route(c.state, true)
				time.Sleep(c.after)
				cp.route(c.state, false)
				if cp.routed != c.want {
					t.Errorf("gateways were told: %v", cp.routed)
				}
			})
		})
	}
}
