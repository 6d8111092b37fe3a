//go:build integration

package relay

import (
	"fmt"
	"net/http"
	"testing"
)

// forgingRoute is a route as somebody else's VirtualService makes it: it sets the headers that the
// daemon believes, and shows in its answers what an endpoint's metadata says.
func forgingRoute(host, cluster string) string {
	return fmt.Sprintf(`- name: %s
              domains: [%q]
              request_headers_to_add:
              - {header: {key: x-headstart-function, value: victim/g}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
              - {header: {key: x-headstart-key, value: stolen}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
              - {header: {key: x-headstart-input, value: "s3://secret/a"}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
              response_headers_to_add:
              - {header: {key: x-leak, value: "%%METADATA(UPSTREAM_HOST:headstart:key)%%"}}
              routes: [{match: {prefix: /}, route: {cluster: %q}}]
            `, host, host, cluster)
}

// A route cannot say whose function its requests are for: what leads to a function's cluster is that
// function's, and what leads to the daemon by an address of its own is nobody's.
func TestARouteCannotSpeakForAFunction(t *testing.T) {
	const own, around = "own.example", "around.example"
	b := newBed(t, func(b *bed) {
		b.routes = forgingRoute(own, "outbound|80||fire.default.svc.cluster.local") + forgingRoute(around, "outbound|80||around.example")
		// As Istio makes it of a ServiceEntry with the address unix:///run/headstart/gateway/ingress.sock.
		b.clusters = fmt.Sprintf(`- {name: "outbound|80||around.example", type: STATIC, load_assignment: {cluster_name: around,
    endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %q}}}, metadata: {filter_metadata: {istio: {workload: around}}}}]}]}}`, b.socket("ingress.sock"))
	})
	ingress := b.listen("unix", b.socket("ingress.sock"), says("daemon"))
	b.update(at())
	b.startEnvoy(b.plugin())
	b.comes("daemon")

	answer := b.ask(own)
	if r, _ := ingress.request(); r.Header.Get("x-headstart-function") != "default/fire" ||
		!b.keys.Valid("default/fire", r.Header.Get("x-headstart-key")) {
		t.Errorf("to the function's own cluster, the daemon gets %v", r.Header)
	}
	if leaked := answer.Get("x-leak"); b.keys.Valid("victim/g", leaked) || !b.keys.Valid("default/fire", leaked) {
		t.Errorf("the route is told %q, which is not just the key of the function that it leads to", leaked)
	}
	b.ask(around)
	if r, _ := ingress.request(); r.Host != around || len(r.Header.Values("x-headstart-key")) > 0 {
		t.Errorf("by an address of its own, the daemon gets %v", r.Header)
	}
}

// ask sends a request to another host, and returns the answer's headers.
func (b *bed) ask(host string) http.Header {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Host = host
	answer, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %s", host, answer.Status)
	}
	return answer.Header
}
