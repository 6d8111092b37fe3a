//go:build cluster

package istio_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

// daemon is the part of a node's daemon that gateways talk to.
type daemon struct {
	endpointservice.UnimplementedEndpointDiscoveryServiceServer
	logs.UnimplementedLogsServiceServer
	workload

	socket string // of the ingress

	mu        sync.Mutex
	log       []string
	endpoints map[string]*discovery.Resource
	changed   chan struct{} // closed at the next change
}

// nodeKey is what a gateway has to show at gateway.sock.
const nodeKey = "the node's key"

func startDaemon(t *testing.T, dir string) *daemon {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte(nodeKey), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{workload: newWorkload(t), endpoints: map[string]*discovery.Resource{}, changed: make(chan struct{}), socket: filepath.Join(dir, "ingress.sock")}
	listen := func(name string) net.Listener {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	g := grpc.NewServer()
	endpointservice.RegisterEndpointDiscoveryServiceServer(g, d)
	logs.RegisterLogsServiceServer(g, d)
	secretservice.RegisterSecretDiscoveryServiceServer(g, d)
	ingress := &http.Server{Handler: answer("daemon")}
	var serving sync.WaitGroup
	serving.Go(func() { g.Serve(listen("gateway.sock")) })
	serving.Go(func() { ingress.Serve(listen("ingress.sock")) })
	t.Cleanup(func() { g.Stop(); ingress.Close(); serving.Wait() })
	return d
}

// answer says who it is, and what the gateway made of the request.
func answer(who string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", who, r.Header.Get("x-headstart-input"))
	})
}

// Export keeps the lines that it gets.
func (d *daemon) Export(_ context.Context, m *logs.ExportLogsServiceRequest) (*logs.ExportLogsServiceResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, resource := range m.GetResourceLogs() {
		for _, scope := range resource.GetScopeLogs() {
			for _, record := range scope.GetLogRecords() {
				d.log = append(d.log, record.GetBody().GetStringValue())
			}
		}
	}
	return &logs.ExportLogsServiceResponse{}, nil
}

// counted is how many requests of the function the gateway has told of.
func (d *daemon) counted(function string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, line := range d.log {
		if strings.HasPrefix(line, function+" ") {
			n++
		}
	}
	return n
}

// serve sets the function's endpoints: instances, and below them the daemon.
func (d *daemon) serve(t *testing.T, name string, instances ...string) {
	t.Helper()
	d.serveAs(t, nil, name, instances...)
}

// serveAs gives the instances metadata by which Istio chooses their transport sockets.
func (d *daemon) serveAs(t *testing.T, metadata map[string]string, name string, instances ...string) {
	t.Helper()
	of := func(a *core.Address, metadata map[string]string) *endpoint.LbEndpoint {
		e := &endpoint.LbEndpoint{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: a}}}
		for k, v := range metadata {
			e.Metadata = &core.Metadata{FilterMetadata: map[string]*structpb.Struct{
				"envoy.transport_socket_match": {Fields: map[string]*structpb.Value{k: structpb.NewStringValue(v)}},
			}}
		}
		return e
	}
	a := &endpoint.ClusterLoadAssignment{ClusterName: name}
	for _, i := range instances {
		host, port, _ := net.SplitHostPort(i)
		var n uint32
		fmt.Sscan(port, &n)
		a.Endpoints = append(a.Endpoints, &endpoint.LocalityLbEndpoints{LbEndpoints: []*endpoint.LbEndpoint{of(&core.Address{Address: &core.Address_SocketAddress{
			SocketAddress: &core.SocketAddress{Address: host, PortSpecifier: &core.SocketAddress_PortValue{PortValue: n}}}}, metadata)}})
	}
	a.Endpoints = append(a.Endpoints, &endpoint.LocalityLbEndpoints{Priority: 1, LbEndpoints: []*endpoint.LbEndpoint{of(
		&core.Address{Address: &core.Address_Pipe{Pipe: &core.Pipe{Path: d.socket}}}, map[string]string{istio.NodeSocketKey: istio.NodeSocket})}})
	packed, err := anypb.New(a)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endpoints[name] = &discovery.Resource{Name: name, Version: time.Now().String(), Resource: packed}
	close(d.changed)
	d.changed = make(chan struct{})
}

// DeltaEndpoints sends the endpoints that are asked for, and each change of them.
func (d *daemon) DeltaEndpoints(s endpointservice.EndpointDiscoveryService_DeltaEndpointsServer) error {
	if got := metadata.ValueFromIncomingContext(s.Context(), "x-headstart-key"); !slices.Equal(got, []string{nodeKey}) {
		return status.Errorf(codes.PermissionDenied, "the gateway shows the keys %q", got)
	}
	asked := make(chan []string)
	go func() {
		defer close(asked)
		for {
			r, err := s.Recv()
			if err != nil {
				return
			}
			asked <- r.ResourceNamesSubscribe
		}
	}()
	var names []string
	sent := map[string]string{}
	for {
		d.mu.Lock()
		changed := d.changed
		r := &discovery.DeltaDiscoveryResponse{TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment", Nonce: "n"}
		for _, n := range names {
			if e := d.endpoints[n]; e != nil && sent[n] != e.Version {
				sent[n] = e.Version
				r.Resources = append(r.Resources, e)
			}
		}
		d.mu.Unlock()
		if len(r.Resources) > 0 {
			if err := s.Send(r); err != nil {
				return err
			}
		}
		select {
		case more, open := <-asked:
			if !open {
				return nil
			}
			names = append(names, more...) // none in an acknowledgement
		case <-changed:
		}
	}
}

// write makes a file in dir, and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// get is what a URL answers, empty if nothing.
func get(url string) string {
	r, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body) // as much as there is
	return string(text)
}

// startPilot starts istiod's discovery server, and returns its port. Its mesh has what
// vanilla Envoy can do.
func startPilot(t *testing.T, s *apiServer, dir string) (port string) {
	t.Helper()
	meshConfig := write(t, dir, "mesh.yaml", "accessLogFile: /dev/stdout\nenablePrometheusMerge: false\nenableAutoMtls: true\ndefaultProviders: {}\n")
	port, debug := apiservertest.FreePort(t), apiservertest.FreePort(t)
	apiservertest.Run(t, dir, []string{"POD_NAMESPACE=" + root, "POD_NAME=istiod-1", "PILOT_ENABLE_METADATA_EXCHANGE=false", "PILOT_ENABLE_ALPN_FILTER=false",
		"INJECTION_WEBHOOK_CONFIG_NAME=", "VALIDATION_WEBHOOK_CONFIG_NAME="},
		apiservertest.Binary(t, "pilot-discovery"), "discovery", "--kubeconfig", s.Kubeconfig(t), "--meshConfig", meshConfig, "--networksConfig", "/nonexistent",
		"--grpcAddr", "127.0.0.1:"+port, "--secureGRPCAddr", "", "--httpAddr", "127.0.0.1:"+debug, "--httpsAddr", "",
		"--monitoringAddr", "127.0.0.1:"+apiservertest.FreePort(t), "--ctrlz_port", apiservertest.FreePort(t), "--ctrlz_address", "127.0.0.1", "--clusterID", "c1")
	eventually(t, "istiod", func() bool {
		r, err := http.Get("http://127.0.0.1:" + debug + "/ready")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	return port
}

// gateway is a vanilla Envoy behind istiod.
type gateway struct{ admin, url, dir string }

func (s *mesh) startEnvoy(t *testing.T, listen, name, metadata string) *gateway {
	t.Helper()
	secrets := filepath.Join(s.dir, "gateway.sock")
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	admin := apiservertest.FreePort(t)
	file := write(t, dir, "bootstrap.yaml", fmt.Sprintf(`
admin: {address: {socket_address: {address: 127.0.0.1, port_value: %s}}}
node:
  id: router~10.255.0.9~%[3]s.default~default.svc.cluster.local
  cluster: %[3]s.default
  metadata:
    LABELS: {app: %[3]s, headstart.dev/gateway: "true"}
    NAMESPACE: default
    CLUSTER_ID: c1
    ISTIO_VERSION: "1.31.0"
    INSTANCE_IPS: "10.255.0.9"
    PROXY_CONFIG: {}
%[4]s
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds-grpc}}]}
  lds_config: {ads: {}, resource_api_version: V3}
  cds_config: {ads: {}, resource_api_version: V3}
static_resources:
  clusters:
  - name: xds-grpc
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: xds-grpc, endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %[2]s}}}}]}]}
  - name: sds-grpc
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: sds-grpc, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %[5]s}}}}]}]}
`, admin, s.pilot, name, metadata, secrets))
	apiservertest.Run(t, dir, nil, programtest.Path(t, "envoy"), "-c", file, "--use-dynamic-base-id", "--concurrency", "1", "--file-flush-interval-msec", "50")
	return &gateway{admin: "http://127.0.0.1:" + admin, url: "http://127.0.0.1:" + listen, dir: dir}
}

// ask sends a request to the function and returns status and answer.
func (g *gateway) ask(path string, header http.Header) string {
	r, err := http.NewRequest(http.MethodGet, g.url+path, nil)
	if err != nil {
		return err.Error()
	}
	r.Host, r.Header = fireHost, header
	if r.Header == nil {
		r.Header = http.Header{}
	}
	answer, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
	return fmt.Sprintf("%d %s", answer.StatusCode, strings.TrimSpace(string(body)))
}

// log is Envoy's output, with the access log in it.
func (g *gateway) log() string {
	text, _ := os.ReadFile(filepath.Join(g.dir, "envoy.log"))
	return string(text)
}

func (g *gateway) config() string { return get(g.admin + "/config_dump?include_eds") }

// shipped reads a manifest of ours, with the sockets in dir.
func shipped(t *testing.T, file, dir string) []unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../manifests/istio", file))
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, []byte(strings.ReplaceAll(string(text), "/run/headstart/gateway", dir)))
}

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// route has the gateway send all hosts to the function; below /input as the filter does for
// requests with an input.
func (s *mesh) route(t *testing.T, name, port string) {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: %[1]s, namespace: default}
spec:
  selector: {app: %[1]s}
  servers: [{port: {number: %[2]s, name: http, protocol: HTTP}, hosts: ["*"], bind: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: %[1]s, namespace: default}
spec:
  hosts: ["*"]
  gateways: [%[1]s]
  http:
  - match: [{uri: {prefix: /input}}]
    headers: {request: {set: {x-headstart-endpoint: %[3]s, x-headstart-input: "s3://a/b"}}}
    route: [{destination: {host: %[4]s, port: {number: 80}}}]
  - route: [{destination: {host: %[4]s, port: {number: 80}}}]
`, name, port, s.daemon.socket, fireHost)
	for i, o := range objects(t, []byte(text)) {
		s.put(t, gvr("networking.istio.io", "v1", []string{"gateways", "virtualservices"}[i]), &o)
	}
}

// mesh is an Istio with what we ship for its gateways, the Service of a function, and the
// daemon of the gateways' node.
type mesh struct {
	*apiServer
	pilot  string // its port
	daemon *daemon
	dir    string // of the daemon's sockets, and of the gateways
}

func startMesh(t *testing.T) *mesh {
	t.Helper()
	s := &mesh{apiServer: startAPIServer(t)}
	s.fresh(t)
	dir, err := os.MkdirTemp("", "hs") // short: unix sockets lie there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s.dir, s.pilot, s.daemon = dir, startPilot(t, s.apiServer, dir), startDaemon(t, dir)
	s.put(t, gvr("", "v1", "services"), &objects(t, []byte(`
apiVersion: v1
kind: Service
metadata: {name: fire, namespace: default}
spec: {ports: [{name: http, port: 80, targetPort: 8080}]}
`))[0])
	for _, o := range shipped(t, "gateways.yaml", dir) {
		s.put(t, istio.EnvoyFilter.GVR(), &o)
	}
	return s
}

func TestGatewaysOfARealIstio(t *testing.T) {
	s := startMesh(t)
	d := s.daemon
	ours, plain := apiservertest.FreePort(t), apiservertest.FreePort(t)
	s.route(t, "gw", ours)
	s.route(t, "plain", plain)
	w, _ := start(t, s, istio.Config{})
	f := fire(fireHost)
	d.serve(t, f.Service.Endpoints)

	with := s.startEnvoy(t, ours, "gw", `    HEADSTART: "true"`)
	without := s.startEnvoy(t, plain, "plain", "")
	eventually(t, "Istio's answer, as there are no endpoints", func() bool { return strings.HasPrefix(with.ask("/", nil), "503") })
	began := time.Now()
	w.Set(istio.Desired{Functions: []istio.Function{f}})
	eventually(t, "the daemon's answer to a cold request", func() bool { return with.ask("/", nil) == "200 daemon" })
	t.Logf("from the function's first word to the gateway's use of it: %v", time.Since(began))

	instance := httptest.NewServer(answer("instance"))
	t.Cleanup(instance.Close)
	d.serve(t, f.Service.Endpoints, instance.Listener.Addr().String())
	eventually(t, "the instance's answer to a hot one", func() bool { return with.ask("/", nil) == "200 instance" })

	t.Run("a hot request with an input goes to the daemon", func(t *testing.T) {
		if got := with.ask("/input", nil); got != "200 daemon s3://a/b" {
			t.Error(got)
		}
	})
	t.Run("clients cannot say what the gateway says", func(t *testing.T) {
		for _, name := range []string{"x-headstart-endpoint", "X-Headstart-Input", "x_headstart_input", "x-headstart_input"} {
			if got := with.ask("/", http.Header{name: {d.socket}}); got != "200 instance" {
				t.Errorf("%s: %s", name, got)
			}
		}
	})
	t.Run("requests are counted", func(t *testing.T) {
		before := d.counted(f.Name)
		with.ask("/", nil)
		eventually(t, "one more", func() bool { return d.counted(f.Name) > before })
	})
	t.Run("the listener's own access log has one line for a request", func(t *testing.T) {
		with.ask("/once", nil)
		lines := func() int { return strings.Count(with.log(), "GET /once ") }
		eventually(t, "the line", func() bool { return lines() > 0 })
		if n := lines(); n != 1 {
			t.Errorf("%d lines", n)
		}
	})
	sidecar := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "sidecar %s", r.TLS.ServerName)
	}))
	sidecar.TLS = d.config()
	sidecar.StartTLS()
	t.Cleanup(sidecar.Close)
	t.Run("an instance with a sidecar is reached by the mesh's mutual TLS", func(t *testing.T) {
		d.serveAs(t, map[string]string{"tlsMode": "istio"}, f.Service.Endpoints, sidecar.Listener.Addr().String())
		eventually(t, "the sidecar's answer", func() bool { return with.ask("/", nil) == "200 sidecar outbound_.80_._."+fireHost })
		if got := with.ask("/input", nil); got != "200 daemon s3://a/b" {
			t.Errorf("the daemon beside it: %s", got)
		}
	})
	t.Run("the daemon is reached plainly whatever a DestinationRule says", func(t *testing.T) {
		s.put(t, gvr("networking.istio.io", "v1", "destinationrules"), &objects(t, []byte(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: fire, namespace: default}
spec: {host: `+fireHost+`, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
`))[0])
		eventually(t, "the rule's effect", func() bool {
			dump := get(with.admin + "/config_dump?resource=dynamic_active_clusters&name_regex=.*fire.*")
			return !strings.Contains(dump, "tlsMode-istio") && strings.Contains(dump, "headstart-node")
		})
		if got := with.ask("/input", nil); got != "200 daemon s3://a/b" {
			t.Error(got)
		}
		if got := with.ask("/", nil); got != "200 sidecar outbound_.80_._."+fireHost {
			t.Error(got)
		}
	})
	t.Run("a gateway without our sockets is left as it is", func(t *testing.T) {
		if got := without.ask("/", nil); !strings.HasPrefix(got, "503") {
			t.Error(got)
		}
		if dump := without.config(); dump == "" || strings.Contains(dump, "headstart-gateway") {
			t.Error("its configuration names headstart-gateway")
		}
	})
	t.Run("nothing was refused", func(t *testing.T) {
		if dump := with.config(); strings.Contains(dump, `"error_state"`) {
			t.Error(dump[strings.Index(dump, `"error_state"`):][:500])
		}
	})
	if dump := os.Getenv("HEADSTART_DUMP"); dump != "" {
		os.WriteFile(dump, []byte(with.config()), 0o600)
	}
	t.Run("a function that is gone is Istio's again", func(t *testing.T) {
		w.Set(istio.Desired{})
		eventually(t, "Istio's answer", func() bool { return strings.HasPrefix(with.ask("/", nil), "503") })
	})
}

// The filter that make build has made, brought by the TrafficExtension that we ship.
func TestFilterOfARealIstio(t *testing.T) {
	s := startMesh(t)
	dir, d := s.dir, s.daemon
	wasm := programtest.Path(t, "filters.wasm")
	extension := shipped(t, "traffic-extension.yaml", dir)[0]
	set := func(value any, fields ...string) {
		if err := unstructured.SetNestedField(extension.Object, value, append([]string{"spec", "wasm"}, fields...)...); err != nil {
			t.Fatal(err)
		}
		s.put(t, istio.TrafficExtension.GVR(), &extension)
	}
	// What no filter takes.
	set("v0", "pluginConfig", "version")
	// Vanilla Envoy has nobody that pulls images for it.
	set("file://"+wasm, "url")
	port := apiservertest.FreePort(t)
	s.route(t, "gw", port)
	f := fire(fireHost)
	d.serve(t, f.Service.Endpoints)
	g := s.startEnvoy(t, port, "gw", `    HEADSTART: "true"`)
	eventually(t, "a gateway that works although its filter does not", func() bool { return strings.HasPrefix(g.ask("/", nil), "503") })
	if !strings.Contains(g.log(), "is \"v0\"") {
		t.Error("the filter took the configuration")
	}
	set("v1", "pluginConfig", "version")
	w, _ := start(t, s, istio.Config{})
	plugin, err := istio.PluginConfig()
	if err != nil {
		t.Fatal(err)
	}
	plugin = bytes.ReplaceAll(plugin, []byte(istio.IngressSocket), []byte(d.socket))
	for _, bucket := range []string{"north", "south"} {
		began := time.Now()
		f.Inputs = reference.Inputs{"": "s3://" + bucket + "/{header.x-key}"}
		w.Set(istio.Desired{Functions: []istio.Function{f}, PluginConfig: plugin})
		want := "200 daemon s3://" + bucket + "/1"
		eventually(t, want, func() bool { return g.ask("/", http.Header{"X-Key": {"1"}}) == want })
		t.Logf("from an annotation's change to its effect: %v", time.Since(began))
	}
	if st := w.Status(); len(st.Problems) != 0 {
		t.Error(st)
	}
	panics := filepath.Join(dir, "panics.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", panics, "./testdata/panics")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	set("file://"+panics, "url")
	eventually(t, "the other filter", func() bool { return strings.HasSuffix(g.ask("/", nil), "panics.wasm") })
	g.ask("/", http.Header{"X-Panic": {"now"}})
	if got := g.ask("/", nil); got != "200 daemon" {
		t.Errorf("after the filter's panic: %s", got)
	}
}
