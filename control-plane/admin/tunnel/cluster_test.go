//go:build cluster

package tunnel_test

import (
	"net"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/admin/tunnel"
	"github.com/headstart-mesh/headstart/control-plane/admin/tunnel/tunneltest"
	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
)

// A real API server takes WebSocket, from Kubernetes 1.31 on, and speaks SPDY to the kubelet.
func TestThroughARealAPIServer(t *testing.T) {
	k := &tunneltest.Kubelet{Ports: map[string]string{"9466": admin(t)}}
	ks := httptest.NewTLSServer(k)
	t.Cleanup(func() {
		ks.Close()
		k.Wait()
	})
	s := apiservertest.Start(t)
	ctx := t.Context()
	_, port, _ := net.SplitHostPort(ks.Listener.Addr().String())
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if _, err := s.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "headstart-system"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "headstart-controlplane-0"}, Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	if pod, err = s.Client.CoreV1().Pods("headstart-system").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := s.Client.CoreV1().Pods("headstart-system").UpdateStatus(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}

	if text, err := get(t, s.Config, 9466); err != nil || text != "status of headstart" {
		t.Fatalf("%q, %v", text, err)
	}
	const forward = " /portForward/headstart-system/headstart-controlplane-0"
	want := []string{"POST" + forward}
	if _, older := apiservertest.Older(t, s.Client.Discovery(), "1.31"); older { // it leaves WebSockets to the kubelet
		want = []string{"GET" + forward, "POST" + forward}
	}
	if asked := k.Asked(); !slices.EqualFunc(asked, want, strings.HasPrefix) {
		t.Errorf("the kubelet was asked for %q", asked)
	}
	if _, err := get(t, s.Config, 9467); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := tunnel.Dial(ctx, s.Config, "headstart-system", "other", 9466); !apierrors.IsNotFound(err) {
		t.Errorf("no such pod: %v", err)
	}
	stranger := *s.Config
	stranger.BearerToken = "x"
	if _, err := tunnel.Dial(ctx, &stranger, "headstart-system", "headstart-controlplane-0", 9466); !apierrors.IsUnauthorized(err) {
		t.Errorf("a stranger: %v", err)
	}
}
