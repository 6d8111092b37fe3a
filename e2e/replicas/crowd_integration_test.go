//go:build integration

package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

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
	// crowdControlPlane is what a control plane's container may use in the chart (controlplane.resources), in MiB.
	crowdControlPlane = 256
	// crowdSettled is what the daemon may use when it has given back what it needed to take the functions in, in MiB:
	// more than it does, and less than a daemon that keeps what each control plane says.
	crowdSettled = 75
	// crowdQuiet is for how long the daemon's memory is not to change by more than crowdJitter, in MiB, before it is
	// recorded: longer than the daemon waits between two returns of memory.
	crowdQuiet  = 35 * time.Second
	crowdJitter = 4
)

// toldFunctions are those that a control plane has told the daemon, relayedFunctions those that the daemon has taken
// over from one of them.
var (
	toldFunctions    = regexp.MustCompile(`(?m)^headstart_control_plane_functions\{[^}]*\} (\S+)$`)
	relayedFunctions = regexp.MustCompile(`(?m)^headstart_relay_functions (\S+)$`)
)

// However many functions there are, a daemon keeps to its memory: told by two control planes of 10,000 functions in
// 100 namespaces. The control planes, which are without a mesh here, keep to theirs. The last line that it logs is
// for programs.
func TestAttackManyFunctionsFitTheDaemon(t *testing.T) {
	b := newControlPlanes(t)
	n := &node{name: b.kubelet.nodes[0], dir: filepath.Join(b.dir, b.kubelet.nodes[0]), ip: "127.21.0.1"}
	b.nodes = append(b.nodes, n)
	b.cluster.join(n.name, n.ip)
	b.eventually("the control planes' authority", b.authority)
	b.startDaemon(n)
	b.connected(2)
	before := b.mib(n.daemon, "VmRSS")
	b.crowd()
	b.eventually("all functions of both control planes at the daemon", n.hasCrowd)
	settled := b.settled(n.daemon)
	for _, p := range b.controlPlanes {
		most := b.mib(p.program, "VmHWM")
		if t.Logf("the %s control plane at most %.1f MiB", p.name, most); most > crowdControlPlane {
			t.Errorf("a control plane used %.0f MiB, and may use %d", most, crowdControlPlane)
		}
	}
	most := b.mib(n.daemon, "VmHWM")
	if most > crowdMost {
		t.Errorf("the daemon used %.0f MiB, and may use %d", most, crowdMost)
	}
	if settled > crowdSettled {
		t.Errorf("the daemon uses %.0f MiB in the end, and may use %d", settled, crowdSettled)
	}
	line, err := json.Marshal(map[string]float64{"daemon_rss_mib_10000_functions": settled})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("before %.1f MiB, at most %.1f: %s", before, most, line)
}

// mib is a program's value in /proc/PID/status.
func (b *bed) mib(p *program, field string) float64 {
	b.t.Helper()
	bytes, err := testbed.Memory(p.cmd.Process.Pid, field)
	if err != nil {
		b.t.Fatal(err)
	}
	return float64(bytes) / (1 << 20)
}

// settled is how much memory a program uses, in MiB, when that no longer changes.
func (b *bed) settled(p *program) (mib float64) {
	b.t.Helper()
	mib, since := b.mib(p, "VmRSS"), time.Now()
	if err := testbed.Poll(b.t.Context(), 3*patience, func(context.Context) error {
		if now := b.mib(p, "VmRSS"); math.Abs(now-mib) > crowdJitter {
			mib, since = now, time.Now()
		}
		if time.Since(since) < crowdQuiet {
			return fmt.Errorf("%.1f MiB since %v", mib, time.Since(since))
		}
		return nil
	}); err != nil {
		b.t.Errorf("the memory still changes: %v", err)
	}
	return b.mib(p, "VmRSS")
}

// hasCrowd tells whether the daemon has heard of all functions from both control planes.
func (n *node) hasCrowd() error {
	answer, err := client.Get("http://" + n.metrics + "/metrics")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	found := slices.Concat(toldFunctions.FindAllSubmatch(text, -1), relayedFunctions.FindAllSubmatch(text, -1))
	if len(found) != 3 {
		return fmt.Errorf("%d control planes have told functions", len(found)-1)
	}
	for _, f := range found {
		if has, err := strconv.ParseFloat(string(f[1]), 64); err != nil {
			return err
		} else if has < crowdFunctions {
			return errors.New(string(f[0]))
		}
	}
	return nil
}

// crowd adds the functions, each of a Deployment without pods.
func (b *bed) crowd() {
	none := int32(0)
	for i := range crowdFunctions {
		labels := map[string]string{"app": fmt.Sprintf("crowd-%d", i)}
		meta := metav1.ObjectMeta{Namespace: fmt.Sprintf("crowd-%d", i%crowdNamespaces), Name: labels["app"]}
		function := corev1.Container{Name: "function", Image: "function",
			Ports: []corev1.ContainerPort{{ContainerPort: functionPort}}}
		b.cluster.put("ADDED", "deployments", &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{function}}}}})
		meta.Annotations = map[string]string{"headstart.dev/scale-to-zero": idleWindow.String()}
		b.cluster.put("ADDED", "services", &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: labels,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP,
				TargetPort: intstr.FromInt32(functionPort)}}}})
	}
}
