package admission_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/headstart-mesh/headstart/control-plane/admission"
)

// refused is the policy's word on an object, empty if it may be.
func refused(t *testing.T, policy, object string) string {
	t.Helper()
	for _, p := range admission.Policies(allowedCEL, destinationsCEL) {
		if p.Policy.Name != policy {
			continue
		}
		var o map[string]any
		if err := yaml.Unmarshal([]byte(object), &o); err != nil {
			t.Fatal(err)
		}
		message, err := compile(t, p.Policy).admit(nil, o, "default")
		if err != nil {
			t.Fatal(err)
		}
		return message
	}
	t.Fatalf("there is no policy %s", policy)
	return ""
}

// A route does not speak as the gateway, whatever kind it is of and wherever it tries.
func TestRoutesThatSpeakAsAGateway(t *testing.T) {
	for name, object := range map[string]string{
		"VirtualService, set":         `spec: {http: [{route: [{}]}, {headers: {request: {set: {x-headstart-function: victim/g}}}}]}`,
		"VirtualService, add":         `spec: {http: [{headers: {request: {add: {X-Headstart-Input: "s3://secret/a"}}}}]}`,
		"VirtualService, underscores": `spec: {http: [{headers: {request: {add: {x_headstart_input: "s3://secret/a"}}}}]}`,
		"VirtualService, one of the destinations": `spec: {http: [{route: [{destination: {host: a}},
			{destination: {host: b}, headers: {request: {set: {x-headstart-key: k}}}}]}]}`,
		"HTTPRoute, set": `spec: {rules: [{filters: [{type: URLRewrite},
			{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-headstart-function, value: victim/g}]}}]}]}`,
		"HTTPRoute, add": `spec: {rules: [{filters: [{type: RequestHeaderModifier,
			requestHeaderModifier: {add: [{name: x-a}, {name: X-HEADSTART-INPUT}]}}]}]}`,
		"HTTPRoute, of a backendRef": `spec: {rules: [{backendRefs: [{name: a,
			filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-headstart-function}]}}]}]}]}`,
	} {
		if message := refused(t, "headstart-routes", object); !strings.Contains(message, "must not set or add headers that begin with x-headstart-") {
			t.Errorf("%s: %q", name, message)
		}
	}
	for name, object := range map[string]string{
		"nothing":   `metadata: {name: a}`,
		"no routes": `spec: {hosts: [a]}`,
		"other": `spec: {http: [{headers: {request: {set: {x-key: a}, add: {x-b: c}, remove: [x-headstart-input]},
			response: {set: {x-headstart: a}}}, route: [{}]}]}`,
		"TCP": `spec: {tcp: [{route: [{destination: {host: a}}]}]}`,
		"an HTTPRoute": `spec: {rules: [{}, {filters: [{type: RequestRedirect}, {type: RequestHeaderModifier,
			requestHeaderModifier: {remove: [x-a], set: [{name: x-key, value: a}]}}], backendRefs: [{name: a}]}]}`,
	} {
		if message := refused(t, "headstart-routes", object); message != "" {
			t.Errorf("%s: %q", name, message)
		}
	}
}

// No entry leads a gateway to the daemon's sockets.
func TestEntriesThatLeadToSockets(t *testing.T) {
	for name, object := range map[string]string{
		"ServiceEntry":             `spec: {hosts: [a], endpoints: [{address: 10.0.0.1}, {address: "unix:///run/headstart/gateway/ingress.sock"}]}`,
		"ServiceEntry, abstract":   `spec: {endpoints: [{address: "UNIX://@headstart"}]}`,
		"ServiceEntry for all":     `spec: {exportTo: ["*"], endpoints: [{address: "unix:///proc/self/root/run/headstart/gateway/gateway.sock"}]}`,
		"ServiceEntry for another": `spec: {exportTo: [".", istio-system], endpoints: [{address: "unix:///run/a"}]}`,
		"WorkloadEntry":            `spec: {address: "unix:///run/headstart/gateway/hints.sock"}`,
	} {
		if message := refused(t, "headstart-addresses", object); !strings.Contains(message, "must not be a unix socket") {
			t.Errorf("%s: %q", name, message)
		}
	}
	for name, object := range map[string]string{
		"a host":                 `spec: {hosts: [a], location: MESH_EXTERNAL, resolution: DNS}`,
		"addresses":              `spec: {addresses: [10.0.0.0/8], endpoints: [{address: 10.0.0.1}, {address: unix.example}]}`,
		"a socket for its own":   `spec: {exportTo: ["."], endpoints: [{address: "unix:///run/a"}]}`,
		"a WorkloadEntry":        `spec: {address: 10.0.0.1}`,
		"one without an address": `spec: {network: a}`,
	} {
		if message := refused(t, "headstart-addresses", object); message != "" {
			t.Errorf("%s: %q", name, message)
		}
	}
}
