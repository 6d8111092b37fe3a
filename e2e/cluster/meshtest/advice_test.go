//go:build cluster

package meshtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/headstart-mesh/headstart/control-plane/advice"
	"github.com/headstart-mesh/headstart/e2e/cluster/cloud"
	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/functions/mjpeggen"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
)

const (
	// advised is the part that the ten services are.
	advised = "advised"
	// phase is how long they are looked at, before and after the annotations.
	phase = 4 * time.Minute
	// worth is what replicas have to be away for: with pauses of a minute, and not of hours, the balance is another one.
	worth = 4.0
	// bandwidth is with how many bytes per second clients send, mbits the same for the command.
	bandwidth, mbits = 3e6, "24"
	// shortest is the shortest idle window that an advice names.
	shortest = 30 * time.Second
	// chunk is what a client sends at once.
	chunk = 50_000
	// few of a video's frames are looked at, so that a warm answer takes no time.
	few = "1000000"
)

// use is how one of the services is used.
type use struct {
	name     string
	replicas int
	start    time.Duration
	body     int64         // bytes of a video; 0: one frame, which is there at once
	pause    time.Duration // between two requests; the first comes after half of it
	gains    bool          // it is to be advised
}

var uses = []use{
	{name: "minute", replicas: 1, start: time.Second, pause: time.Minute, gains: true},
	{name: "two-replicas", replicas: 2, start: time.Second, pause: time.Minute, gains: true},
	{name: "slower", replicas: 1, start: 3 * time.Second, pause: 80 * time.Second, gains: true},
	{name: "rare", replicas: 1, start: 5 * time.Second, pause: 2 * time.Minute, gains: true},
	{name: "once", replicas: 2, start: 2 * time.Second, pause: 3 * time.Minute, gains: true},
	{name: "bodies", replicas: 1, start: 4 * time.Second, body: 6e6, pause: 70 * time.Second, gains: true},
	{name: "larger-bodies", replicas: 1, start: 6 * time.Second, body: 12e6, pause: 100 * time.Second, gains: true},
	{name: "busy", replicas: 2, start: time.Second, pause: 2 * time.Second},
	{name: "never-idle", replicas: 1, start: time.Second, pause: 20 * time.Second},
	{name: "too-slow", replicas: 1, start: 10 * time.Second, pause: 45 * time.Second},
}

// mesh counts as Istio's proxies do, which the cluster's plain Envoys cannot.
type mesh struct {
	requests, bytes, durations *prometheus.CounterVec
	// videos are the bodies by their size.
	videos map[int64][]byte
}

func newMesh(t *testing.T) (m mesh, address string) {
	registry := prometheus.NewRegistry()
	counter := func(name string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "As Istio has it."},
			[]string{"reporter", "source_workload_namespace", "source_workload", "destination_service_namespace", "destination_service_name"})
		registry.MustRegister(c)
		return c
	}
	m = mesh{counter("istio_requests_total"), counter("istio_request_bytes_sum"), counter("istio_request_duration_milliseconds_sum"), map[int64][]byte{}}
	for _, u := range uses {
		if m.videos[u.body] == nil {
			var video bytes.Buffer
			if _, err := mjpeggen.Generate(&video, u.body, 1); err != nil {
				t.Fatal(err)
			}
			m.videos[u.body] = video.Bytes()
		}
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(cloud.Host.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return m, listener.Addr().String()
}

// ask sends a request, and counts it.
func (m mesh) ask(ctx context.Context, c *world.Client, u use) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := c.Request(ctx, http.MethodPost, u.name)
	if err != nil {
		return err
	}
	video := m.videos[u.body]
	r.Body, r.ContentLength = io.NopCloser(&paced{bytes.NewReader(video)}), int64(len(video))
	began := time.Now()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s, %w", u.name, answer.Status, text, err)
	}
	const headers = 600
	labels := []string{"source", "istio-system", "istio-ingressgateway", world.Functions, u.name}
	m.requests.WithLabelValues(labels...).Inc()
	m.bytes.WithLabelValues(labels...).Add(float64(len(video) + headers))
	m.durations.WithLabelValues(labels...).Add(float64(time.Since(began).Milliseconds()))
	return nil
}

// paced is a body that a client sends as fast as its line is.
type paced struct{ io.Reader }

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b[:min(len(b), chunk)])
	<-time.After(time.Duration(float64(n) / bandwidth * float64(time.Second)))
	return n, err
}

// traffic sends requests to all of them for a phase, at the same times in each.
func (m mesh) traffic(t *testing.T, c *world.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), phase)
	defer cancel()
	began := time.Now()
	g := errgroup.Group{}
	for _, u := range uses {
		g.Go(func() error {
			for at := u.pause / 2; ; at += u.pause {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Until(began.Add(at))):
				}
				if err := m.ask(t.Context(), c, u); err != nil { // one that is under way at the end is answered
					return err
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
}

// The services are looked at without Headstart, get the annotations of the advice, and what comes of that is compared with what
// was said. Those that are better left as they are get the shortest idle window nevertheless, and lose by it.
func TestAdviceComesTrue(t *testing.T) {
	m, exporter := newMesh(t)
	watch(t, exporter)
	client, err := in.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	defer http.DefaultClient.CloseIdleConnections()
	deployed := func(annotations map[string]map[string]string) {
		t.Helper()
		functions := []world.Function{}
		for _, u := range uses {
			functions = append(functions, world.Function{Name: u.name, Replicas: u.replicas, Part: advised,
				Env: map[string]string{"FIRE_STARTUP": u.start.String(), "FIRE_EVERY": few}, Annotations: annotations[u.name]})
		}
		if err := in.Deploy(t.Context(), functions...); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := in.Undeploy(context.WithoutCancel(t.Context()), advised); err != nil {
			t.Error(err)
		}
	})
	deployed(nil)
	tool(t, "kubectl", "-n", world.Functions, "wait", "--for=condition=Available", "--timeout=120s", "deployments", "--selector", "part="+advised)

	m.traffic(t, client)
	var said []advice.Service
	if err := in.CLI(t.Context(), &said, "advise", "-n", world.Functions, "--since", phase.String(), "--worth", fmt.Sprint(worth), "--client-bandwidth", mbits); err != nil {
		t.Fatal(err)
	}
	byName := map[string]advice.Service{}
	set := map[string]map[string]string{}
	for _, s := range said {
		byName[s.Name] = s
		if set[s.Name] = s.Annotations; len(s.Annotations) == 0 {
			set[s.Name] = map[string]string{"headstart.dev/scale-to-zero": shortest.String()}
		}
	}
	deployed(set)
	m.traffic(t, client)
	var came struct{ Functions []advice.Gained }
	if err := in.CLI(t.Context(), &came, "report", "-n", world.Functions, "--since", phase.String()); err != nil {
		t.Fatal(err)
	}
	near := 0
	for _, u := range uses {
		s, g := byName[u.name], advice.Gained{}
		for _, one := range came.Functions {
			if one.Function == world.Functions+"/"+u.name {
				g = one
			}
		}
		gained := g.IdleReplicaSeconds > worth*g.StartSeconds
		t.Logf("%-14s said: %v, replicas away for %.0f s, %.1f cold, overlapped %.1f s; came: %.0f s, %.0f cold for %.1f s, %.1f s saved",
			u.name, s.Annotations, s.IdleReplicaSeconds, s.ColdStarts, s.OverlappedSeconds, g.IdleReplicaSeconds, g.ColdStarts, g.StartSeconds, g.SavedSeconds)
		if got := len(s.Annotations) > 0; got != u.gains || got != gained {
			t.Errorf("%s: an advice: %v; it gains: %v", u.name, got, gained)
		}
		if !gained || within(s.IdleReplicaSeconds, g.IdleReplicaSeconds) && within(s.OverlappedSeconds, g.SavedSeconds) {
			near++
		}
	}
	if t.Logf("advice_right: %d of %d", near, len(uses)); near < 8 {
		t.Errorf("%d of %d are within 30 %%", near, len(uses))
	}
}

func within(said, came float64) bool { return math.Abs(said-came) <= 0.3*came }

// watch has a Prometheus in a pod ask the mesh, control planes and daemons, where Istio's samples have it: the API server, by which
// the command line gets there, leads to pods only.
func watch(t *testing.T, exporter string) {
	t.Helper()
	const image, program = "headstart.local/prometheus:1", "/usr/bin/prometheus"
	files := map[string]ociimage.File{program: {Source: program, Mode: 0o755}}
	if err := ociimage.AddLibraries(files, program); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := ociimage.Build(&archive, ociimage.Image{Ref: image, Entrypoint: []string{program}, Files: files}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "prometheus.tar")
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := in.ImportImage(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	targets := []string{exporter}
	for pod := range strings.FieldsSeq(kubectl(t, "-n", world.System, "get", "pods", "--field-selector", "status.phase=Running", "-o",
		`jsonpath={range .items[*]}{.status.podIP}:{.spec.containers[*].ports[?(@.name=="http-metrics")].containerPort}{"\n"}{end}`)) {
		if !strings.HasSuffix(pod, ":") {
			targets = append(targets, pod)
		}
	}
	t.Cleanup(func() {
		remove(t, "kubectl", "-n", "istio-system", "delete", "service,pod,configmap", "--selector", "app=prometheus")
	})
	apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: prometheus, namespace: istio-system, labels: {app: prometheus}}
spec: {selector: {app: prometheus}, ports: [{port: 9090}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prometheus, namespace: istio-system, labels: {app: prometheus}}
data:
  prometheus.yaml: |
    global: {scrape_interval: 5s}
    scrape_configs: [{job_name: all, static_configs: [{targets: ["%s"]}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: prometheus, namespace: istio-system, labels: {app: prometheus}}
spec:
  containers:
  - name: prometheus
    image: %s
    args: [--config.file=/etc/prometheus/prometheus.yaml, --storage.tsdb.path=/data]
    readinessProbe: {httpGet: {path: /-/ready, port: 9090}, periodSeconds: 1}
    volumeMounts: [{name: config, mountPath: /etc/prometheus}, {name: data, mountPath: /data}]
  volumes: [{name: config, configMap: {name: prometheus}}, {name: data, emptyDir: {}}]
`, strings.Join(targets, `", "`), image))
	tool(t, "kubectl", "-n", "istio-system", "wait", "--for=condition=Ready", "--timeout=60s", "pod/prometheus")
}
