//go:build integration

package relay

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	olderlog "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
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

// aroundRoute is a route of a tenant's to one of the daemon's sockets, by an entry of its own, as Istio makes both, with
// whatever headers the route likes. Mirrored requests pass no filters of the router.
func (b *bed) aroundRoute(host, socket, protocol string) {
	cluster := "outbound|80||" + host
	b.routes += fmt.Sprintf(`- name: %[1]s
              domains: [%[1]q, "%[1]s:*"]
              request_headers_to_add:
              - {header: {key: x-headstart-key, value: stolen}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}
              routes:
              - {match: {prefix: /mirrored}, route: {cluster: "outbound|80||fire.default.svc.cluster.local",
                  request_mirror_policies: [{cluster: %[2]q}]}}
              - {match: {prefix: /}, route: {cluster: %[2]q, timeout: 0s}}
            `, host, cluster)
	b.clusters += fmt.Sprintf(`- {name: %[1]q, type: STATIC, load_assignment: {cluster_name: around,
    endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %[2]q}}}}]}]}, typed_extension_protocol_options: {
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions: {
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {%[3]s: {}}}}}
  `, cluster, b.socket(socket), protocol)
}

// A route that leads to gateway.sock gets neither endpoints nor keys, and what it says of requests does not count. Nor does
// who connects to the socket itself, as a TCP route has clients do.
func TestAttackARouteAsksAsTheGateway(t *testing.T) {
	const around = "around.example"
	b := newBed(t, func(b *bed) { b.aroundRoute(around, "gateway.sock", "http2_protocol_options") })
	b.listen("unix", b.socket("ingress.sock"), says("daemon"))
	b.update(at())
	b.startEnvoy(nil)
	b.comes("daemon") // so the gateway itself has its endpoints

	for name, target := range map[string]string{
		"a route": strings.Trim(strings.TrimPrefix(b.url, "http://"), "/"), "a TCP route": "unix:" + b.socket("gateway.sock"),
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(around))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-headstart-key", "stolen"), patience)
			defer cancel()
			endpoints, err := endpointservice.NewEndpointDiscoveryServiceClient(conn).DeltaEndpoints(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_ = endpoints.Send(&discovery.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{at().Functions[0].AssignmentName()}})
			if got, err := endpoints.Recv(); status.Code(err) != codes.PermissionDenied {
				t.Errorf("it gets %v, %v", got, err)
			}
			if _, err := logs.NewLogsServiceClient(conn).Export(ctx, &logs.ExportLogsServiceRequest{}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("its report: %v", err)
			}
			older, err := olderlog.NewAccessLogServiceClient(conn).StreamAccessLogs(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_ = older.Send(&olderlog.StreamAccessLogsMessage{})
			if _, err := older.CloseAndRecv(); status.Code(err) != codes.PermissionDenied {
				t.Errorf("its report in the older form: %v", err)
			}
		})
	}
}

// A route that leads to hints.sock, or mirrors requests there, has no key; the filter's own hints have.
func TestAttackARouteHints(t *testing.T) {
	const around = "around.example"
	for _, program := range []string{"envoy", "envoy-oldest"} {
		t.Run(program, func(t *testing.T) {
			b := newBed(t, takesInput, func(b *bed) { b.program = program; b.aroundRoute(around, "hints.sock", "http_protocol_options") })
			b.listen("unix", b.socket("ingress.sock"), says("daemon"))
			hints := b.listenForHints()
			b.update(at())
			b.startEnvoy(b.plugin())
			b.comes("daemon")

			keyed := func(r *http.Request) bool { return b.keys.Admits(r.Header.Get("x-headstart-key")) }
			b.get("x-key", "a")
			b.eventually("a hint", func() bool { _, n := hints.request(); return n == 1 })
			if r, _ := hints.request(); !keyed(r) {
				t.Errorf("the filter's hint: %v", r.Header)
			}
			for i, path := range []string{"", "mirrored"} {
				b.ask(around, path)
				b.eventually("a request", func() bool { _, n := hints.request(); return n == 2+i })
				if r, _ := hints.request(); keyed(r) {
					t.Errorf("/%s of a route: %v", path, r.Header)
				}
			}
		})
	}
}

// ask sends a request to another host, and returns the answer's headers.
func (b *bed) ask(host string, path ...string) http.Header {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+strings.Join(path, "/"), nil)
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
