//go:build cluster

package meshtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/check"
)

// module is where a module's files are that Istio's programs here are built of.
func module(t *testing.T, path string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = in.IstioModules()
	out, err := cmd.Output()
	if err != nil || strings.TrimSpace(string(out)) == "" {
		t.Fatalf("module %s: %q, %v", path, out, err)
	}
	return strings.TrimSpace(string(out))
}

func tool(t *testing.T, name string, args ...string) {
	t.Helper()
	if err := in.Tool(t.Context(), nil, name, args...); err != nil {
		t.Fatal(err)
	}
}

// byChart makes a gateway by Istio's chart, with what docs/operations/istio.md adds, and a Gateway of Istio's API for it.
func byChart(t *testing.T) (gateway pod, way string) {
	tool(t, "helm", "upgrade", "--install", "istio-chart", filepath.Join(module(t, "istio.io/istio"), "manifests/charts/gateway"), "-n", plain,
		"--set", "service.type=ClusterIP,autoscaling.enabled=false,imagePullPolicy=IfNotPresent,resources.requests.cpu=10m,resources.requests.memory=64Mi",
		"-f", in.Source("manifests/istio/gateway-chart.yaml"))
	t.Cleanup(func() { remove(t, "helm", "uninstall", "istio-chart", "-n", plain) })
	apply(t, `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: chart, namespace: `+plain+`}
spec:
  selector: {istio: chart}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]
`)
	return readyPod(t, plain, "istio=chart"), plain + "/chart"
}

// byGatewayAPI has istiod make one of a Gateway of Kubernetes' own API.
func byGatewayAPI(t *testing.T) pod {
	// Not all of them: the API server has to be 1.31 or later for TLSRoute.
	var kinds []string
	for _, kind := range []string{"gatewayclasses", "gateways", "httproutes", "referencegrants"} {
		kinds = append(kinds, "-f", filepath.Join(module(t, "sigs.k8s.io/gateway-api"), "config/crd/standard/gateway.networking.k8s.io_"+kind+".yaml"))
	}
	tool(t, "kubectl", append([]string{"apply", "--server-side"}, kinds...)...)
	t.Cleanup(func() { remove(t, "kubectl", append([]string{"delete", "--timeout=60s"}, kinds...)...) })
	tool(t, "kubectl", "wait", "--for=condition=Established", "--timeout=60s", "crd/gateways.gateway.networking.k8s.io", "crd/httproutes.gateway.networking.k8s.io")
	tool(t, "kubectl", "-n", plain, "apply", "-f", in.Source("manifests/istio/gateway-api.yaml"))
	apply(t, `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: api, namespace: `+plain+`, annotations: {networking.istio.io/service-type: ClusterIP}}
spec:
  gatewayClassName: istio
  infrastructure:
    parametersRef: {group: "", kind: ConfigMap, name: headstart-gateway}
  listeners: [{name: http, port: 8080, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
`)
	t.Cleanup(func() { remove(t, "kubectl", "-n", plain, "delete", "gateways.gateway.networking.k8s.io", "api") })
	return readyPod(t, plain, "gateway.networking.k8s.io/gateway-name=api")
}

func remove(t *testing.T, name string, args ...string) {
	if err := in.Tool(context.WithoutCancel(t.Context()), nil, name, args...); err != nil {
		t.Error(err)
	}
}

// httpRoute leads a Gateway of Kubernetes' own API to a service.
func httpRoute(s service) string {
	return strings.NewReplacer("NAMESPACE", s.namespace, "NAME", s.name, "HOST", s.host(), "GATEWAYS", plain).Replace(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  parentRefs: [{name: api, namespace: GATEWAYS}]
  hostnames: [HOST]
  rules: [{backendRefs: [{name: NAME, port: 80}]}]
`)
}

// Gateways that istioctl has not made do as those that it has: by the chart, and of the Gateway API, also after istiod has
// written what it makes once more.
func TestGatewaysThatOthersHaveMade(t *testing.T) {
	t.Run("TheChart", func(t *testing.T) {
		gateway, way := byChart(t)
		function := service{name: "by-chart", namespace: strict, function: true, gateways: []string{way}}
		deploy(t, gateway, function)
		serves(t, gateway, function)
		tool(t, "kubectl", "-n", plain, "rollout", "restart", "deployment/istio-chart")
		tool(t, "kubectl", "-n", plain, "rollout", "status", "deployment/istio-chart", "--timeout=120s")
		eventually(t, "the pod of before is gone", func(ctx context.Context) error {
			return in.Tool(ctx, nil, "kubectl", "-n", plain, "wait", "--for=delete", "--timeout=60s", "pod/"+gateway.name)
		})
		again := readyPod(t, plain, "istio=chart")
		known(t, again, function)
		ok(t, again, function, true)
	})
	t.Run("TheGatewayAPI", func(t *testing.T) {
		gateway := byGatewayAPI(t)
		function := service{name: "by-api", namespace: strict, function: true}
		apply(t, function.manifest())
		apply(t, httpRoute(function))
		known(t, gateway, function)
		serves(t, gateway, function)
		// istiod makes the Deployment again, another istiod at that, as after an upgrade.
		tool(t, "kubectl", "-n", "istio-system", "rollout", "restart", "deployment/istiod")
		tool(t, "kubectl", "-n", "istio-system", "rollout", "status", "deployment/istiod", "--timeout=120s")
		tool(t, "kubectl", "-n", plain, "delete", "deployment", "api-istio", "--cascade=foreground")
		again := readyPod(t, plain, "gateway.networking.k8s.io/gateway-name=api")
		if again.uid == gateway.uid {
			t.Fatal("it is the pod of before")
		}
		known(t, again, function)
		ok(t, again, function, true)
	})
}

// serves goes the way of a function from zero on.
func serves(t *testing.T, gateway pod, function service) {
	t.Helper()
	if a := ok(t, gateway, function, true); !a.from(daemonIdentity) {
		t.Errorf("cold: %v", a)
	}
	eventually(t, "the gateway has the instance", endpoints(gateway, function))
	ok(t, gateway, function, true)
	ok(t, gateway, function, false)
	eventually(t, "check finds nothing wrong with the gateways", func(ctx context.Context) error {
		out, _ := in.Output(ctx, nil, "headstart", "check", "-o", "json", "--kubeconfig", in.Kubeconfig()) // another check may fail
		var checked []check.Result
		if err := json.Unmarshal([]byte(out), &checked); err != nil {
			return err
		}
		looked := 0
		for _, c := range checked {
			if c.ID != "gateways" && c.ID != "prefetch-filter" {
				continue
			}
			if looked++; c.Status == check.Fail {
				return fmt.Errorf("%s: %s %v", c.ID, c.Message, c.Problems)
			}
		}
		if looked != 2 {
			return fmt.Errorf("%d of 2 checks", looked)
		}
		return nil
	})
}
