//go:build cluster

package meshtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// routeFilter is the name of the filter in manifests/istio/gateways.yaml.
const routeFilter = "headstart.route"

// expects asks whether the gateway's route filter reckons with so many pods of the service.
func expects(gateway pod, s service, pods int) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := filters(ctx, gateway)
		i := slices.IndexFunc(all, func(f filter) bool { return f.name == routeFilter })
		if err != nil || i < 0 {
			return errors.Join(err, fmt.Errorf("no %s among %.600q", routeFilter, all))
		}
		config, err := filterapi.ParseRoute([]byte(all[i].config))
		if err != nil {
			return err
		}
		known := 0
		for _, line := range config.Lines {
			if filterapi.RouteCluster(line) == s.cluster() {
				f, err := filterapi.ParseRouteFunction(line)
				if err != nil {
					return err
				}
				known = len(f.Endpoints)
			}
		}
		if known != pods {
			return fmt.Errorf("it knows %d pods: %.600s", known, all[i].config)
		}
		return nil
	}
}

// The node's daemon tells the gateway's route filter what to expect of each pod, while istiod
// has all else of the gateway's configuration. Pods that come and go cost no request.
func TestTheRouteFilterKnowsThePods(t *testing.T) {
	gateway, f := ingressGateway(t), service{name: "routed", namespace: strict, function: true, withoutInput: true, replicas: 2}
	deploy(t, gateway, f)
	eventually(t, "two pods", expects(gateway, f, 2))
	under(t, f, []pod{gateway}, func() {
		for _, n := range []int{3, 2} {
			kubectl(t, "-n", strict, "scale", "deployment", f.name, fmt.Sprint("--replicas=", n))
			eventually(t, fmt.Sprint(n, " pods"), expects(gateway, f, n))
		}
	})
	if a := ok(t, gateway, f, false); !a.from(gatewayIdentity) {
		t.Errorf("the gateway did not send it to a pod: %v", a)
	}
}
