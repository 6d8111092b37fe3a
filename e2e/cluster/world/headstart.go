package world

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/admin/tunnel"
	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// BuildImages builds Headstart's images as `make images` does, with a version, and pushes
// them to the cluster's registry. It returns the values for the chart that name them.
func (w *World) BuildImages(ctx context.Context, version string) (values string, err error) {
	out := w.path("images-" + version)
	err = w.make(ctx, "./manifests/images", "-out", out, "-registry", cluster.Registry, "-tag", version, "-version", version)
	return filepath.Join(out, "values.yaml"), err
}

// Release makes a release as `make release` does, for this machine, of images that BuildImages has made for the version.
func (w *World) Release(ctx context.Context, version string) (dir string, err error) {
	dir, changes := w.path("release-"+version), w.path("changes-"+version+".md")
	if err := os.WriteFile(changes, []byte("## "+strings.TrimPrefix(version, "v")+"\n"), 0o600); err != nil {
		return "", err
	}
	err = w.make(ctx, "./manifests/release", "-out", dir, "-images", w.path("images-"+version), "-registry", cluster.Registry, "-version", version,
		"-changelog", changes, "-systems", runtime.GOOS+"/"+runtime.GOARCH)
	return dir, err
}

func (w *World) make(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"run"}, args...)...)
	cmd.Dir = w.config.Source
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, said)
	}
	return nil
}

// Install installs or upgrades Headstart by its chart and returns how long that took until
// everything was ready.
func (w *World) Install(ctx context.Context, values string, more ...string) (time.Duration, error) {
	if err := w.storeSecret(ctx); err != nil {
		return 0, err
	}
	own, err := w.Values(ctx, storeSecret)
	if err != nil {
		return 0, err
	}
	stores := w.path("stores.yaml")
	if err := os.WriteFile(stores, []byte(own), 0o600); err != nil {
		return 0, err
	}
	began := time.Now()
	err = w.Tool(ctx, nil, "helm", append([]string{"upgrade", "--install", "headstart", w.Source("manifests/charts/headstart"), "-n", System,
		"-f", values, "-f", stores, "--wait", "--timeout", "2m"}, more...)...)
	return time.Since(began), err
}

// Values are those of the chart for this cluster, with the S3 server, whose credentials the Secret has.
func (w *World) Values(ctx context.Context, secret string) (string, error) {
	served, err := w.Output(ctx, nil, "kubectl", "get", "--raw", "/apis/admissionregistration.k8s.io/v1")
	if err != nil {
		return "", err
	}
	placement := strings.Contains(served, `"MutatingAdmissionPolicy"`) // without it the chart refuses
	// The nodes are on this machine's disk, of which a fifth need not be free.
	return fmt.Sprintf("node: {cacheSpare: 0, writeBackAfter: 10s}\nplacement: {enabled: %[7]t}\nstores:\n- name: %[1]s\n  namespaces: [%[2]s]\n"+
		"  s3: {endpoint: %[3]q, pathStyle: true, buckets: [%[4]s, %[6]s], write: {%[4]s: through, %[6]s: back}, credentialsSecret: %[5]s}\n",
		StoreName, Functions, w.Cloud.S3.Endpoint, testbed.Bucket, secret, testbed.Interim, placement), nil
}

// Stores is the chart's value `stores`, as JSON for helm's --set-json: the S3 server, for
// the functions of these namespaces.
func (w *World) Stores(namespaces ...string) string {
	b, err := json.Marshal([]any{map[string]any{"name": StoreName, "namespaces": namespaces, "s3": map[string]any{
		"endpoint": w.Cloud.S3.Endpoint, "pathStyle": true, "buckets": []string{testbed.Bucket, testbed.Interim},
		"write": map[string]string{testbed.Bucket: "through", testbed.Interim: "back"}, "credentialsSecret": storeSecret}}})
	if err != nil {
		panic(err) // of strings alone
	}
	return string(b)
}

// storedSecret is what storeSecret of whoever uses the cluster has put there.
func (w *World) storedSecret(ctx context.Context) (s testbed.Secret, err error) {
	file, err := w.Output(ctx, nil, "kubectl", "-n", System, "get", "secret", storeSecret, "-o", "go-template={{.data.credentials | base64decode}}")
	if err != nil {
		return s, err
	}
	return testbed.ParseSecret(file)
}

// storeSecret makes the namespace, and in it the secret of the store, as an operator does
// before the installation.
func (w *World) storeSecret(ctx context.Context) error {
	manifest := map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": System}},
		map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": storeSecret, "namespace": System},
			"stringData": map[string]any{"credentials": w.Cloud.S3.Secret.File()}},
	}}
	b, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	return w.Apply(ctx, string(b))
}

// Uninstall does what docs/operations/uninstall.md says.
func (w *World) Uninstall(ctx context.Context) error {
	return w.Tool(ctx, nil, "helm", "uninstall", "headstart", "-n", System, "--wait", "--timeout", "3m")
}

// CLI runs `headstart` and reads the JSON that it prints.
func (w *World) CLI(ctx context.Context, into any, args ...string) error {
	out, err := w.Output(ctx, nil, "headstart", append(args, "-o", "json", "--kubeconfig", w.Kubeconfig())...)
	if err != nil {
		return err
	}
	return json.NewDecoder(strings.NewReader(out)).Decode(into)
}

// adminPort is where the control plane's pod serves its operator, on its loopback.
const adminPort = 9466

// Admin is the control planes' door, as the CLI opens it. The caller closes it.
func (w *World) Admin() (*admin.Client, error) {
	server, err := w.REST()
	if err != nil {
		return nil, err
	}
	pods := func(ctx context.Context) ([]string, error) {
		names, err := w.Output(ctx, nil, "kubectl", "-n", System, "get", "pods", "-l", "app.kubernetes.io/name=headstart-controlplane",
			"--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].metadata.name}")
		return strings.Fields(names), err
	}
	return admin.NewClientOfAll(pods, func(ctx context.Context, pod string) (net.Conn, error) {
		return tunnel.Dial(ctx, server, System, pod, adminPort)
	}), nil
}
