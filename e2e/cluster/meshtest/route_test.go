//go:build cluster

package meshtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// hints is where the gateway's filters ask their daemon, with the key in keyFile.
	hints   = "/run/headstart/gateway/hints.sock"
	keyFile = "/run/headstart/gateway/key"
)

// expects asks whether the gateway's route filter is told of so many pods of the service.
func expects(gateway pod, s service, pods int) func(context.Context) error {
	return func(ctx context.Context) error {
		envoy, err := in.Envoy(gateway.uid)
		if err != nil {
			return err
		}
		defer envoy.Close()
		text, err := envoy.Ask(ctx, hints, filterapi.ExpectationsPath, keyFile)
		if err != nil {
			return err
		}
		config, err := filterapi.ParseRoute([]byte(text))
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
			return fmt.Errorf("it is told of %d pods: %.600s", known, text)
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
	eventually(t, "no filter but the one by digest", func(ctx context.Context) error {
		all, err := filters(ctx, gateway)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%.600q", all)
		}
		return err
	})
}
