//go:build cluster

package charts_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/headstart-mesh/headstart/control-plane/istio"
	"github.com/headstart-mesh/headstart/control-plane/lease"
)

// function is a Deployment as it is in Git, where Headstart says how many replicas it has.
const function = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: fire, namespace: default}
spec:
  selector: {matchLabels: {app: fire}}
  template:
    metadata: {labels: {app: fire}}
    spec: {containers: [{name: fire, image: "example.com/fire:1"}]}
`

// What tools of GitOps do, in both of their ways: they apply the chart without its Lease, compare it again and again with
// what is there, and apply it again when that is another. The control planes' own work is no difference, and stays.
func TestGitOpsLeavesTheControlPlanesItsOwn(t *testing.T) {
	for name, apply := range map[string][]string{
		"server-side": {"--server-side", "--force-conflicts", "--field-manager=gitops"}, "client-side": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := bare(t)
			rendered := must(t, values, "helm", "template", "headstart", "headstart", "-n", namespace, "--no-hooks", "-f", "-")
			var inGit []string
			for _, object := range strings.Split(rendered, "\n---") {
				if !strings.Contains(object, "\nkind: Lease\n") {
					inGit = append(inGit, object)
				}
			}
			all := strings.Join(append(inGit, function), "\n---\n")
			sync := func() {
				must(t, all, "kubectl", append([]string{"--kubeconfig", s.config, "apply", "-f", "-"}, apply...)...)
			}
			sync()

			client := s.as(t, "headstart-controlplane", "n1")
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			held, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- lease.New(client, namespace, "controlplane-1", slog.New(slog.DiscardHandler)).Run(ctx, func(ctx context.Context) {
					close(held)
					<-ctx.Done()
				})
			}()
			select {
			case <-held:
			case err := <-ended:
				t.Fatal("nobody is in charge: ", err)
			}
			secrets := client.CoreV1().Secrets(namespace)
			ca, err := secrets.Get(t.Context(), "headstart-ca", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ca.Data = map[string][]byte{"tls.key": []byte("key")}
			if _, err := secrets.Update(t.Context(), ca, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			extensions := dynamic.NewForConfigOrDie(s.Config).
				Resource(schema.GroupVersionResource{Group: "extensions.istio.io", Version: "v1alpha1", Resource: "trafficextensions"}).Namespace("istio-system")
			written := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "extensions.istio.io/v1alpha1", "kind": "TrafficExtension", "metadata": map[string]any{"name": "headstart-prefetch"},
				"spec": map[string]any{"wasm": map[string]any{"pluginConfig": map[string]any{"written": "by a control plane"}}}}}
			if _, err := extensions.Apply(t.Context(), "headstart-prefetch", written, metav1.ApplyOptions{FieldManager: istio.FieldManager}); err != nil {
				t.Fatal(err)
			}
			_, err = client.AppsV1().Deployments("default").UpdateScale(t.Context(), "fire",
				&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "fire", Namespace: "default"}}, metav1.UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}

			diff := []string{"--kubeconfig", s.config, "diff", "-f", "-"}
			if out, err := program(t, all, "kubectl", append(diff, apply...)...); err != nil {
				t.Errorf("Git and cluster differ: %v\n%s", err, out)
			}
			sync()
			if ca, err := secrets.Get(t.Context(), "headstart-ca", metav1.GetOptions{}); err != nil || string(ca.Data["tls.key"]) != "key" {
				t.Errorf("the control planes' authority is gone: %v", err)
			}
			e, err := extensions.Get(t.Context(), "headstart-prefetch", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if by, _, _ := unstructured.NestedString(e.Object, "spec", "wasm", "pluginConfig", "written"); by == "" {
				t.Error("the filter's configuration is gone")
			}
			if d, err := client.AppsV1().Deployments("default").GetScale(t.Context(), "fire", metav1.GetOptions{}); err != nil || d.Spec.Replicas != 0 {
				t.Errorf("the function has replicas again: %v, %v", d, err)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
