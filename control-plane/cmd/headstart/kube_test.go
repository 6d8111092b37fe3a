package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/admin/tunnel/tunneltest"
	"github.com/headstart-mesh/headstart/control-plane/event"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/routing"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

const (
	deploymentPath = "/apis/apps/v1/namespaces/headstart-system/deployments/headstart-controlplane"
	podsPath       = "/api/v1/namespaces/headstart-system/pods"
	deployment     = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"headstart-controlplane","namespace":"headstart-system"},
		"spec":{"selector":{"matchLabels":{"app":"headstart"}}},"status":{"availableReplicas":1,"replicas":1}}`
	readyPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"headstart-controlplane-x","namespace":"headstart-system"},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
)

// apiServer is an API server that knows some objects by their paths, and forwards ports
// of the control plane's pod to b.
type apiServer struct {
	objects map[string]string
	// services are what answers for Services, by the beginning of their paths.
	services map[string]*httputil.ReverseProxy
	kubelet  *tunneltest.Kubelet
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == podsPath+"/headstart-controlplane-x/portforward" {
		s.kubelet.ServeHTTP(w, r)
		return
	}
	for prefix, service := range s.services {
		if strings.HasPrefix(r.URL.Path, prefix+"/") && r.Header.Get("Authorization") == "Bearer secret" {
			http.StripPrefix(prefix, service).ServeHTTP(w, r)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if text, ok := s.objects[r.URL.Path]; ok && r.Header.Get("Authorization") == "Bearer secret" {
		fmt.Fprint(w, text)
		return
	}
	code, reason := http.StatusNotFound, "NotFound"
	if r.Header.Get("Authorization") != "Bearer secret" {
		code, reason = http.StatusUnauthorized, "Unauthorized"
	} else if strings.Contains(r.URL.Path, "/namespaces/secret/") {
		code, reason = http.StatusForbidden, "Forbidden"
	}
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"%s: %s","reason":"%s","code":%d}`, reason, r.URL.Path, reason, code)
}

// kubeconfig returns the file with a cluster where b is the control plane.
func kubeconfig(t *testing.T, b *backend, change ...func(*apiServer)) string {
	t.Helper()
	control := httptest.NewServer(admin.Handler(b))
	t.Cleanup(control.Close)
	s := &apiServer{
		objects: map[string]string{deploymentPath: deployment, podsPath: `{"apiVersion":"v1","kind":"PodList","items":[` + readyPod + `]}`},
		kubelet: &tunneltest.Kubelet{Ports: map[string]string{"9466": strings.TrimPrefix(control.URL, "http://")}},
	}
	for _, c := range change {
		c(s)
	}
	api := httptest.NewTLSServer(s)
	t.Cleanup(func() {
		api.Close()
		s.kubelet.Wait()
	})
	return writeConfig(t, api.URL, "secret", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}))
}

func writeConfig(t *testing.T, url, token string, ca []byte) string {
	t.Helper()
	encoded, err := json.Marshal(ca) // base64
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"test",
"clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%s}}],
"users":[{"name":"u","user":{"token":%q}}],
"contexts":[{"name":"test","context":{"cluster":"c","user":"u"}},{"name":"other","context":{"cluster":"c","user":"u"}}]}`, url, encoded, token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// metropolis is the status of a cluster.
func metropolis() admin.Status {
	return admin.Status{
		Version: "v1", Platform: admin.Kubernetes,
		Nodes: []admin.Node{{Name: "node-1", Version: "v1", Instances: 3}, {Name: "node-2", Version: "v0"}},
		Functions: []admin.Function{
			{Name: "city/fire", Hosts: []string{"fire.city.svc.cluster.local"}, Input: "s3://videos/{header.x-key}", Scaler: "Headstart",
				Instances: []admin.Instance{{ID: "a", Node: "node-1", Phase: platform.Ready}, {ID: "b", Node: "node-1", Phase: platform.Ready}, {ID: "c", Node: "node-1", Phase: platform.Starting}}},
			{Name: "city/flood", Hosts: []string{"flood.city.svc.cluster.local"}, Refused: true,
				Events: []event.Event{{Reason: "AnnotationsRefused", Message: "no such store", Count: 1}}},
			{
				Name: "video/scene", Hosts: []string{"scene.video.svc.cluster.local"}, Scaler: "Knative",
				Endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.7:8012")},
			},
		},
		Routing: []routing.Problem{
			{Function: "city/fire", Gateways: []string{"node-1", "node-2", "node-3", "node-4", "node-5"}, Message: "no weights"},
			{Gateways: []string{"node-1"}, Message: "refused its endpoints: no room"}},
		Mesh: &admin.Mesh{Installed: true, Problems: []admin.MeshProblem{{Object: "EnvoyFilter istio-system/headstart.city.fire", Cause: "Forbidden", Message: "may not patch", Fix: "grant it"}}},
	}
}

func TestStatusOfACluster(t *testing.T) {
	config := kubeconfig(t, &backend{status: metropolis()})
	stdout, stderr, err := headstart(t, "", "status", "--kubeconfig", config)
	if err != nil || stderr != "" {
		t.Fatalf("%v; %s", err, stderr)
	}
	for _, line := range []string{
		"node-1   -         3           v1\n",
		"2 ready on node-1, starting on node-1   Headstart   s3://videos/{header.x-key}\n",
		"annotations refused                     -           -\n",
		"ready at 1 endpoint                     Knative     -\n",
		"AnnotationsRefused: no such store\n",
		"ROUTING OF      AT GATEWAYS                         PROBLEM\n",
		"city/fire       node-1, node-2, node-3 and 2 more   no weights\n",
		"all functions   node-1                              refused its endpoints: no room\n",
		"EnvoyFilter istio-system/headstart.city.fire   Forbidden: may not patch   grant it\n",
	} {
		if !strings.Contains(stdout, line) {
			t.Errorf("no line %q", line)
		}
	}
	if strings.Contains(stdout, "curl") || t.Failed() {
		t.Errorf("printed:\n%s", stdout)
	}
}

func TestStatusOfANamespace(t *testing.T) {
	config := kubeconfig(t, &backend{status: metropolis()})
	stdout, _, err := headstart(t, "", "status", "--kubeconfig", config, "-n", "video", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var s admin.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || len(s.Functions) != 1 || s.Functions[0].Name != "video/scene" || len(s.Routing) != 1 || s.Routing[0].Function != "" {
		t.Errorf("%v; functions %+v, routing %+v", err, s.Functions, s.Routing)
	}
}

func TestTraceOnACluster(t *testing.T) {
	b := &backend{trace: trace.Trace{ID: "4bf92f3577b34da6a3ce929d0e0e4736", Spans: []trace.Span{{Name: "ingress", Service: "istio-ingressgateway.istio-system", ID: "1"}}}}
	t.Setenv("KUBECONFIG", kubeconfig(t, b))
	stdout, _, err := headstart(t, "", "trace", b.trace.ID, "--context", "other")
	if err != nil || !strings.Contains(stdout, "ingress") {
		t.Errorf("%v, printed:\n%s", err, stdout)
	}
}

// A platform on this machine comes before a cluster that is not named.
func TestWhoIsAsked(t *testing.T) {
	here, there := serve(t, &backend{status: admin.Status{Version: "here"}}), kubeconfig(t, &backend{status: admin.Status{Version: "there"}})
	nobody := t.TempDir()
	for _, c := range []struct {
		self, runDir string
		args         []string
		want         string
	}{
		{"headstart", here, nil, "here"},
		{"headstart", nobody, nil, "there"},
		{"headstart", here, []string{"--context", "test"}, "there"},
		{"headstart", here, []string{"--kubeconfig", there}, "there"},
		{"/usr/local/bin/kubectl-headstart", here, nil, "there"},
	} {
		t.Setenv("KUBECONFIG", there)
		var out strings.Builder
		cmd := command(c.self)
		cmd.PersistentFlags().Lookup("run-dir").Value.Set(c.runDir) // as if it were built in
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"status", "-o", "json"}, c.args...))
		if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), c.want) {
			t.Errorf("%+v: %v: %s", c, err, out.String())
		}
	}
	expectError(t, "--run-dir names a platform on this machine, and the other flags a cluster; use one of the two", "status", "--run-dir", here, "--context", "test")
}

func TestClustersThatDoNotAnswer(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	none := os.Getenv("KUBECONFIG")
	// Nothing at all: neither here nor there.
	dir := t.TempDir()
	cmd := command("headstart")
	cmd.PersistentFlags().Lookup("run-dir").Value.Set(dir)
	cmd.SetArgs([]string{"status"})
	want := "nothing to ask: no platform runs on this machine (" + dir + "/admin.sock), and no cluster is known: there is no kubeconfig in " + none + "; name one by --kubeconfig or $KUBECONFIG"
	if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
	expectError(t, "--kubeconfig: stat "+none+": no such file or directory", "status", "--kubeconfig", none)

	config := kubeconfig(t, &backend{})
	expectError(t, `the kubeconfig has no context "prod"; it has other, test`, "check", "--kubeconfig", config, "--context", "prod")
	expectError(t, "this cluster has no Headstart in namespace elsewhere: install it (docs/operations/install.md), or name its namespace by --headstart-namespace", "status", "--kubeconfig", config, "--headstart-namespace", "elsewhere")

	for want, args := range map[string][]string{
		"does not know you: log in anew":                                      {"status", "--kubeconfig", writeConfig(t, serverOf(t, config), "expired", caOf(t, config))},
		"you may not do this on the cluster: Forbidden":                       {"status", "--kubeconfig", config, "--headstart-namespace", "secret"},
		"you need get of deployments, list of pods and create of pods/portfo": {"status", "--kubeconfig", config, "--headstart-namespace", "secret"},
		"cannot be reached":                                                   {"trace", "1", "--kubeconfig", writeConfig(t, "http://127.0.0.1:1", "", nil)},
		"has no pod that is ready":                                            {"status", "--kubeconfig", kubeconfig(t, &backend{}, func(s *apiServer) { s.objects[podsPath] = `{"kind":"PodList","apiVersion":"v1","items":[]}` })},
		"connect: connection refused":                                         {"status", "--kubeconfig", kubeconfig(t, &backend{}, func(s *apiServer) { s.kubelet.Ports = nil })},
		"kubectl config get-contexts":                                         {"version", "--kubeconfig", writeConfig(t, "http://127.0.0.1:1", "", nil)},
		"no such trace; the latest are kept, and":                             {"trace", "1", "--kubeconfig", config},
	} {
		stdout, _, err := headstart(t, "", args...)
		if err == nil || !strings.Contains(err.Error(), want) || stdout != "" {
			t.Errorf("%v: %v, want %s; printed %q", args, err, want, stdout)
		}
		if err != nil && strings.Contains(err.Error(), "Bearer") {
			t.Errorf("it tells the token: %v", err)
		}
	}
}

func field(t *testing.T, config, name string) string {
	t.Helper()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), `"`+name+`":"`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func serverOf(t *testing.T, config string) string { t.Helper(); return field(t, config, "server") }

func caOf(t *testing.T, config string) []byte {
	t.Helper()
	var ca []byte
	if err := json.Unmarshal([]byte(`"`+field(t, config, "certificate-authority-data")+`"`), &ca); err != nil {
		t.Fatal(err)
	}
	return ca
}

func TestVersionOfACluster(t *testing.T) {
	config := kubeconfig(t, &backend{status: metropolis()})
	expect(t, nodeapi.Version+"\nPART            VERSION\ncontrol plane   v1\n1 node          v0\n1 node          v1\n", "version", "--kubeconfig", config)
	expect(t, "{\n  \"version\": \""+nodeapi.Version+"\",\n  \"controlPlane\": \"v1\",\n  \"nodes\": {\n    \"node-1\": \"v1\",\n    \"node-2\": \"v0\"\n  }\n}\n", "version", "--kubeconfig", config, "-o", "json")
	expect(t, nodeapi.Version+"\n", "version", "--client", "--kubeconfig", config)
	// Not being able to ask others is no reason not to say one's own.
	t.Setenv("KUBECONFIG", writeConfig(t, "http://127.0.0.1:1", "", nil))
	cmd := command("headstart")
	var out, errs strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.PersistentFlags().Lookup("run-dir").Value.Set(t.TempDir())
	cmd.SetArgs([]string{"version"})
	if err := cmd.ExecuteContext(t.Context()); err != nil || out.String() != nodeapi.Version+"\n" || !strings.HasPrefix(errs.String(), "warning: the API server at http://127.0.0.1:1 cannot be reached") {
		t.Errorf("%v; %q; %q", err, out.String(), errs.String())
	}
}

// A plugin's help has what works on a cluster, and nothing else.
func TestPluginsHelpIsOfClusters(t *testing.T) {
	for self, here := range map[string]bool{"kubectl-headstart": false, "headstart": true} {
		for _, args := range [][]string{{"--help"}, {"status", "--help"}} {
			var out strings.Builder
			cmd := command(self)
			cmd.SetOut(&out)
			cmd.SetArgs(args)
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			for _, words := range []string{"--run-dir", "  up ", "  apply ", "headstart up", "image"} {
				if there := strings.Contains(out.String(), words); there && !here || len(args) == 1 && here && !there {
					t.Errorf("%s %v has %q: %v\n%s", self, args, words, there, &out)
				}
			}
		}
	}
}

func TestAsAPluginOfKubectl(t *testing.T) {
	for self, want := range map[string]string{
		"/usr/local/bin/kubectl-headstart": "  kubectl headstart status",
		"kubectl-headstart.exe":            "  kubectl headstart status",
		"/opt/bin/headstart":               "  headstart status",
	} {
		var out strings.Builder
		cmd := command(self)
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"status", "--help"})
		if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "Usage:\n"+want) {
			t.Errorf("%s: %v:\n%s", self, err, out.String())
		}
	}
}

func TestCheckPrints(t *testing.T) {
	config := kubeconfig(t, &backend{status: admin.Status{Version: nodeapi.Version}}, func(s *apiServer) {
		s.objects["/version"] = `{"gitVersion":"v1.29.4"}`
	})
	stdout, _, err := headstart(t, "", "check", "--kubeconfig", config)
	if err == nil || !strings.HasSuffix(err.Error(), "checks failed") {
		t.Errorf("error is %v", err)
	}
	if !strings.HasPrefix(stdout, `fail  Kubernetes               v1.29.4 is older than 1.30
      Upgrade the cluster to Kubernetes 1.30 or later, or name another one by --context.
      See docs/operations/troubleshooting.md#kubernetes-is-too-old
skip  Control plane            needs: Kubernetes
`) || strings.Contains(stdout, "\x1b") {
		t.Errorf("printed:\n%s", stdout)
	}
	stdout, _, err = headstart(t, "", "check", "--kubeconfig", writeConfig(t, "https://127.0.0.1:1", "secret", nil))
	if err == nil || !strings.HasPrefix(stdout, "fail  Kubernetes               looking at the API server: ") || strings.Contains(stdout, "Upgrade") ||
		!strings.Contains(stdout, "docs/operations/troubleshooting.md#the-api-server-does-not-answer") {
		t.Errorf("%v, printed:\n%s", err, stdout)
	}
	stdout, _, err = headstart(t, "", "check", "--pre", "-o", "json", "--kubeconfig", config)
	var results []map[string]any
	if jsonErr := json.Unmarshal([]byte(stdout), &results); jsonErr != nil || err == nil {
		t.Fatalf("%v, %v", jsonErr, err)
	}
	want := map[string]any{"id": "kubernetes", "name": "Kubernetes", "status": "fail", "message": "v1.29.4 is older than 1.30",
		"hint": "Upgrade the cluster to Kubernetes 1.30 or later, or name another one by --context.", "docs": "docs/operations/troubleshooting.md#kubernetes-is-too-old"}
	if d := cmp.Diff(want, results[0]); d != "" {
		t.Error(d)
	}
}

// A control plane that is being replaced still serves, and has spans that no other one has.
func TestAControlPlaneThatIsBeingReplaced(t *testing.T) {
	config := kubeconfig(t, &backend{status: metropolis()}, func(s *apiServer) {
		s.objects[podsPath] = strings.Replace(s.objects[podsPath], `"metadata":{"name":"headstart-controlplane-x"`, `"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","name":"headstart-controlplane-x"`, 1)
		if !strings.Contains(s.objects[podsPath], "deletionTimestamp") {
			t.Fatal(s.objects[podsPath])
		}
	})
	if stdout, stderr, err := headstart(t, "", "status", "--kubeconfig", config); err != nil || !strings.Contains(stdout, "city/fire") {
		t.Errorf("%v; %s%s", err, stdout, stderr)
	}
}

func (b *backend) Cache(context.Context, admin.CacheQuery) ([]admin.CacheNode, error) {
	return nil, nil
}
