//go:build cluster

package meshtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/testbed"
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
	image := kubectl(t, "-n", "istio-system", "get", "trafficextension", "headstart-prefetch", "-o", "jsonpath={.spec.wasm.url}")
	byDigest := loaded(gateway, digestOf(t, image))
	eventually(t, "no filter but the one by digest", func(ctx context.Context) error {
		if err := byDigest(ctx); err != nil {
			return err
		}
		all, err := filters(ctx, gateway)
		if err == nil && len(all) != 1 {
			err = fmt.Errorf("%.600q", all)
		}
		return err
	})
}

// A function gains an input while its gateway's daemon is away, and the filter has expectations of before. Once the
// gateway knows the input, no instance gets a request without it: requests fail until the daemon is back.
func TestAnInputThatComesWithoutTheDaemon(t *testing.T) {
	gateway, f := ingressGateway(t), service{name: "gaining", namespace: strict, function: true, withoutInput: true, replicas: 2}
	deploy(t, gateway, f)
	eventually(t, "two pods", expects(gateway, f, 2))
	ok(t, gateway, f, false)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		defer cancel()
		if err := startDaemons(ctx); err != nil {
			t.Error(err)
		}
	})
	stopDaemons(t)
	kubectl(t, "-n", strict, "annotate", "service", f.name, "headstart.dev/store=footage", "headstart.dev/input="+testbed.Input)
	eventually(t, "the input", templated(gateway, f, testbed.Input))
	whole := func(ctx context.Context) error {
		a, err := call(ctx, gateway, f, true)
		switch {
		case err != nil:
			return err
		case a.status != http.StatusOK:
			return errors.New(a.String())
		case a.report.Body.SHA256 != digest:
			t.Errorf("an instance got a request without its input: %v", a)
		}
		return nil
	}
	for range 20 {
		if err := whole(t.Context()); err == nil {
			t.Error("a request is answered without a daemon that has its input")
		}
	}
	if err := startDaemons(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the daemon is back", whole)
}

// nowhere is a label that no node has.
const nowhere = "headstart.dev/nowhere"

// stopDaemons ends the daemons of all nodes.
func stopDaemons(t *testing.T) {
	t.Helper()
	if err := placeDaemons(t.Context(), `"true"`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no daemon", func(ctx context.Context) error {
		pods, err := in.Output(ctx, nil, "kubectl", "-n", world.System, "get", "pods", "-l", "app.kubernetes.io/name=headstart-node", "-o", "name")
		if err == nil && pods != "" {
			err = errors.New(pods)
		}
		return err
	})
}

// startDaemons is there for daemons that run, too.
func startDaemons(ctx context.Context) error {
	if err := placeDaemons(ctx, "null"); err != nil {
		return err
	}
	return in.Tool(ctx, nil, "kubectl", "-n", world.System, "rollout", "status", "daemonset/headstart-node")
}

func placeDaemons(ctx context.Context, nowhereIs string) error {
	return in.Tool(ctx, nil, "kubectl", "-n", world.System, "patch", "daemonset", "headstart-node", "--type=merge",
		"-p", fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":{%q:%s}}}}}`, nowhere, nowhereIs))
}
