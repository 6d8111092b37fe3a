//go:build cluster

package meshtest

import (
	"strings"
	"testing"
)

// plainGateway is a gateway by Istio's injection template, as the operator of another team
// may have one: without Headstart's mount, metadata and label.
const plainGateway = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: other, namespace: ` + plain + `}
spec:
  selector: {matchLabels: {istio: other}}
  template:
    metadata:
      labels: {istio: other, sidecar.istio.io/inject: "true"}
      annotations: {inject.istio.io/templates: gateway}
    spec:
      containers:
      - name: istio-proxy
        image: auto
        imagePullPolicy: IfNotPresent # auto would be pulled
        resources: {requests: {cpu: 10m, memory: 64Mi}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: other, namespace: ` + plain + `}
spec:
  selector: {istio: other}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]
`

func TestAGatewayWithoutHeadstartIsNotChanged(t *testing.T) {
	ways := []string{plain + "/other", strict + "/meshtest"}
	function := service{name: "both", namespace: strict, replicas: 1, function: true, gateways: ways}
	ordinary := service{name: "ordinary", namespace: strict, replicas: 1, gateways: ways}
	gateway := ingressGateway(t)
	apply(t, plainGateway)
	deploy(t, gateway, function, ordinary)
	other := readyPod(t, plain, "istio=other")
	for _, s := range []service{function, ordinary} {
		s.function = false // for this gateway it is none
		known(t, other, s)
	}
	for _, s := range []service{function, ordinary} {
		eventually(t, "endpoints of "+s.name, endpoints(other, s))
		for _, input := range []bool{false, true} {
			a, err := call(t.Context(), other, s, input)
			if err != nil || a.status != 200 || !a.from("spiffe://cluster.local/ns/"+plain+"/sa/default") || a.report.Body.Bytes != 0 {
				t.Errorf("%s by the other gateway, input %v: %v %v", s.name, input, a, err)
			}
		}
	}
	ok(t, gateway, function, true)
	if a := ok(t, gateway, ordinary, false); !a.from(gatewayIdentity) {
		t.Errorf("an ordinary service by Headstart's gateway: %v", a)
	}
	dump, err := other.admin(t.Context(), "/config_dump?include_eds")
	if err != nil {
		t.Fatal(err)
	}
	for _, ours := range []string{"headstart-gateway", "headstart-ingress", "headstart-hints", "headstart-log", "headstart-prefetch", "x-headstart", "/run/headstart"} {
		if strings.Contains(dump, ours) {
			t.Errorf("the other gateway's configuration has %s", ours)
		}
	}
}
