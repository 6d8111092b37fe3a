//go:build cluster

package meshtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	canaryGateway = "istio-ingressgateway-canary"
	// canaryKinds are those that a revision has objects of.
	canaryKinds = "deployments,services,serviceaccounts,configmaps,roles,rolebindings,poddisruptionbudgets,horizontalpodautoscalers," +
		"clusterroles,clusterrolebindings,validatingwebhookconfigurations,mutatingwebhookconfigurations"
)

// canaryOverlay is manifests/istio/install.yaml with the gateway's block for another name,
// as docs/operations/istio.md says.
func canaryOverlay(t *testing.T) (path string) {
	t.Helper()
	ours, err := os.ReadFile(in.Source("manifests/istio/install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(ours), "name: istio-ingressgateway\n", "name: "+canaryGateway+"\n")
	text = strings.Replace(text, "        enabled: true\n        k8s:\n",
		"        enabled: true\n        label: {app: "+canaryGateway+", istio: canary}\n        k8s:\n          resources: {requests: {cpu: 10m, memory: 64Mi}}\n", 1)
	if !strings.Contains(text, "istio: canary") || strings.Count(text, "name: "+canaryGateway+"\n") != 2 {
		t.Fatal("the overlay is not what it was")
	}
	path = filepath.Join(t.TempDir(), "canary.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// installCanary installs a second revision with its own gateway. The default revision goes
// on to inject sidecars: the webhooks are left as they are.
func installCanary(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		defer cancel()
		// `istioctl uninstall` finds revisions by their webhooks.
		err := in.Tool(ctx, nil, "kubectl", "-n", "istio-system", "delete", canaryKinds, "-l", "istio.io/rev=canary", "--ignore-not-found")
		if err != nil {
			t.Error(err)
		}
	})
	err := in.Tool(t.Context(), nil, "istioctl", "install", "--skip-confirmation", "--set", "revision=canary",
		"--set", "values.global.operatorManageWebhooks=true", "-f", in.Source("e2e/cluster/mesh/vanilla.yaml"), "-f", canaryOverlay(t))
	if err != nil {
		t.Fatal(err)
	}
}

func TestTwoRevisionsSideBySide(t *testing.T) {
	installCanary(t)
	apply(t, `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: canary, namespace: `+strict+`}
spec:
  selector: {istio: canary}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]
`)
	before, canary := ingressGateway(t), readyPod(t, "istio-system", "istio=canary")
	ways := []string{strict + "/meshtest", strict + "/canary"}
	cold := service{name: "by-canary", namespace: strict, function: true, gateways: ways}
	hot := service{name: "by-both", namespace: strict, replicas: 1, function: true, gateways: ways}
	deploy(t, before, cold, hot)
	for _, s := range []service{cold, hot} {
		known(t, canary, s)
		for _, g := range []pod{before, canary} {
			eventually(t, "the filter", templated(g, s, testbed.Input))
		}
	}
	ok(t, canary, cold, true)
	ok(t, before, cold, true)
	for _, g := range []pod{before, canary} {
		ok(t, g, hot, true)
		ok(t, g, hot, false)
	}

	under(t, hot, []pod{before, canary}, func() {
		set(t, "istio.revision", "canary", "")
		eventually(t, "the default revision's gateway is Istio's alone", without(before))
		eventually(t, "its endpoints", endpoints(before, hot))
	})
	known(t, canary, hot)
	ok(t, canary, hot, true)
	if a, err := call(t.Context(), before, hot, true); err != nil || a.status != 200 || !a.from(gatewayIdentity) || a.report.Body.Bytes != 0 {
		t.Errorf("the default revision's gateway: %v %v", a, err)
	}

	under(t, hot, []pod{before, canary}, func() {
		if err := upgrade(t.Context(), "--set", "istio.revision="); err != nil {
			t.Fatal(err)
		}
		known(t, before, hot)
		eventually(t, "the filter", templated(before, hot, testbed.Input))
	})
	ok(t, before, hot, true)
	ok(t, canary, hot, true)
}

// without asks whether a gateway has nothing of ours.
func without(gateway pod) func(context.Context) error {
	return func(ctx context.Context) error {
		dump, err := gateway.admin(ctx, "/config_dump?resource=dynamic_active_clusters")
		if err == nil && strings.Contains(dump, "headstart-gateway") {
			err = errors.New("it has our clusters")
		}
		return err
	}
}
