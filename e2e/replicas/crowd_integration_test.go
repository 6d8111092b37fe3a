//go:build integration

package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

const (
	crowdFunctions, crowdNamespaces = 10_000, 100
	// crowdMost is what a daemon may use of its memory in the chart (node.memory), in MiB.
	crowdMost = 100
	// crowdSettled is how much memory the daemon is to have given back when it has taken in all functions, in MiB.
	crowdSettled = 64
)

var relayedFunctions = regexp.MustCompile(`(?m)^headstart_relay_functions (\S+)$`)

// However many functions there are, a daemon keeps to its memory: told by two control planes of 10,000 functions in
// 100 namespaces. The last line that it logs is for programs.
func TestAttackManyFunctionsFitTheDaemon(t *testing.T) {
	b := newControlPlanes(t)
	n := &node{name: b.kubelet.nodes[0], dir: filepath.Join(b.dir, b.kubelet.nodes[0]), ip: "127.21.0.1"}
	b.nodes = append(b.nodes, n)
	b.cluster.join(n.name, n.ip)
	b.eventually("the control planes' authority", b.authority)
	b.startDaemon(n)
	b.connected(2)
	before := b.mib(n, "VmRSS")
	b.crowd()
	b.eventually("all functions at the daemon", func() error {
		has, err := n.functions()
		if err == nil && has < crowdFunctions {
			err = fmt.Errorf("it has %.0f", has)
		}
		return err
	})
	least := b.mib(n, "VmRSS")
	_ = testbed.Poll(t.Context(), patience, func(context.Context) error { // it is a figure, and no failure
		if least = min(least, b.mib(n, "VmRSS")); least > crowdSettled {
			return errors.New("the daemon has not given back what it used to take the functions in")
		}
		return nil
	})
	most := b.mib(n, "VmHWM")
	if most > crowdMost {
		t.Errorf("the daemon used %.0f MiB, and may use %d", most, crowdMost)
	}
	line, err := json.Marshal(map[string]float64{"daemon_rss_mib_10000_functions": least})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("before %.1f MiB, at most %.1f: %s", before, most, line)
}

// mib is a value of the daemon's in /proc/PID/status.
func (b *bed) mib(n *node, field string) float64 {
	b.t.Helper()
	bytes, err := testbed.Memory(n.daemon.cmd.Process.Pid, field)
	if err != nil {
		b.t.Fatal(err)
	}
	return float64(bytes) / (1 << 20)
}

// functions is how many functions' endpoints the daemon has.
func (n *node) functions() (float64, error) {
	answer, err := client.Get("http://" + n.metrics + "/metrics")
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	found := relayedFunctions.FindSubmatch(text)
	if found == nil {
		return 0, errors.New("no headstart_relay_functions")
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// crowd adds the functions, each of a Deployment without pods.
func (b *bed) crowd() {
	none := int32(0)
	for i := range crowdFunctions {
		labels := map[string]string{"app": fmt.Sprintf("crowd-%d", i)}
		meta := metav1.ObjectMeta{Namespace: fmt.Sprintf("crowd-%d", i%crowdNamespaces), Name: labels["app"]}
		b.cluster.put("ADDED", "deployments", &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "function", Image: "function", Ports: []corev1.ContainerPort{{ContainerPort: functionPort}}}}}}}})
		meta.Annotations = map[string]string{"headstart.dev/scale-to-zero": idleWindow.String()}
		b.cluster.put("ADDED", "services", &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(functionPort)}}}})
	}
}
