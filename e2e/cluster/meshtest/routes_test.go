//go:build cluster

package meshtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// attack leads requests of another namespace's route around a function's cluster, to the socket of the
// node's daemon, in the function's name.
var attack = fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: around, namespace: %[1]s}
spec:
  hosts: [around.internal]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: "unix:///run/headstart/gateway/ingress.sock"}]
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: meshtest, namespace: %[1]s}
spec:
  selector: {istio: ingressgateway}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*.%[1]s.test"]}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: around, namespace: %[1]s}
spec:
  hosts: [around.%[1]s.test]
  gateways: [%[1]s/meshtest]
  http:
  - headers: {request: {set: {x-headstart-function: %[2]s/victim, x-headstart-key: stolen}}}
    route: [{destination: {host: around.internal, port: {number: 80}}}]
`, plain, strict)

// bindings are what makes the policies for routes count.
var bindings = []string{"validatingadmissionpolicybinding/headstart-routes", "validatingadmissionpolicybinding/headstart-addresses"}

// A route speaks for no function: its objects are refused, and where they are there already, the daemon
// believes nothing of what they say.
func TestARouteDoesNotSpeakForAFunction(t *testing.T) {
	gateway := ingressGateway(t)
	victim := service{name: "victim", namespace: strict, function: true}
	deploy(t, gateway, victim)
	err := in.Apply(t.Context(), attack)
	if err == nil {
		t.Fatal("the attack's objects are not refused")
	}
	for _, words := range []string{"must not be a unix socket", "must not set or add headers that begin with x-headstart-"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the refusal does not say that they %s: %v", words, err)
		}
	}

	// As if they had been there before Headstart.
	were := kubectl(t, append([]string{"get", "-o", "yaml"}, bindings...)...)
	kubectl(t, append([]string{"delete"}, bindings...)...)
	restore := func() {
		if err := in.Apply(context.WithoutCancel(t.Context()), were); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(restore)
	eventually(t, "the attack's objects", func(ctx context.Context) error { return in.Apply(ctx, attack) })
	around := service{name: "around", namespace: plain}
	eventually(t, "the daemon's word", func(ctx context.Context) error {
		a, err := call(ctx, gateway, around, true)
		if err == nil && (a.status != http.StatusForbidden || !strings.Contains(a.text, "GatewayUnknown")) {
			err = fmt.Errorf("the route is answered %v", a)
		}
		return err
	})
	kubectl(t, "-n", plain, "delete", "serviceentry/around", "virtualservice/around", "gateway.networking.istio.io/meshtest")
}
