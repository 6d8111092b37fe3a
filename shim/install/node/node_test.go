package node_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/headstart-mesh/headstart/shim/install/node"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func nodeObject(name string, ready corev1.ConditionStatus, labels map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func TestTheLabelSaysWhetherTheNodeIsReady(t *testing.T) {
	client := fake.NewClientset(nodeObject("node-1", corev1.ConditionTrue, map[string]string{"keep": "me"}))
	n := &node.Node{Name: "node-1", Client: client.CoreV1(), Log: slog.New(slog.DiscardHandler)}
	const volume = "ml.volumes.headstart.dev/s3_models_llama"
	_, err := client.CoreV1().Nodes().Apply(t.Context(), corev1ac.Node("node-1").WithLabels(map[string]string{volume: "kept"}),
		metav1.ApplyOptions{FieldManager: nodeapi.VolumeLabels})
	if err != nil {
		t.Fatal(err)
	}
	volumes := true
	for _, ready := range []bool{true, true, false, false} {
		if err := n.SetReady(t.Context(), ready); err != nil {
			t.Fatal(err)
		}
		got, err := client.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		volumes = volumes && ready
		if has := got.Labels[node.Label] == "ready"; has != ready || got.Labels["keep"] != "me" || (got.Labels[volume] != "") != volumes {
			t.Errorf("after %v the labels are %v", ready, got.Labels)
		}
	}
}

func TestANodeThatIsGoneIsNotReady(t *testing.T) {
	n := &node.Node{Name: "gone", Client: fake.NewClientset().CoreV1(), Log: slog.New(slog.DiscardHandler)}
	if err := n.SetReady(t.Context(), false); err != nil {
		t.Error(err)
	}
	if err := n.SetReady(t.Context(), true); err == nil {
		t.Error("a node that is not there was labelled")
	}
}

// The API server of a k3s server is away while its containerd restarts.
func TestLabellingOutlastsTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(nodeObject("node-1", corev1.ConditionTrue, nil))
		away := 20
		client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			away--
			return away > 0, nil, apierrors.NewServiceUnavailable("restarting")
		})
		n := &node.Node{Name: "node-1", Client: client.CoreV1(), Log: slog.New(slog.DiscardHandler)}
		if err := n.SetReady(t.Context(), true); err != nil {
			t.Error(err)
		}
		away = 1 << 30
		if err := n.SetReady(t.Context(), true); err == nil {
			t.Error("it waited for ever")
		}
	})
}

func TestDeniedLabelSaysWhatIsMissing(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-1", nil)
	})
	n := &node.Node{Name: "node-1", Client: client.CoreV1(), Log: slog.New(slog.DiscardHandler)}
	if err := n.SetReady(t.Context(), true); err == nil || !strings.Contains(err.Error(), "patch on nodes") {
		t.Errorf("error %v", err)
	}
}

func TestAnnouncementsAreEventsOfTheNode(t *testing.T) {
	client := fake.NewClientset()
	n := &node.Node{Name: "node-1", Client: client.CoreV1(), Log: slog.New(slog.DiscardHandler)}
	n.Announce(t.Context(), "ContainerdRestarting", "so that")
	events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) != 1 {
		t.Fatalf("events %v, %v", events, err)
	}
	if e := events.Items[0]; e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != "node-1" || e.Reason != "ContainerdRestarting" || e.Message != "so that" {
		t.Errorf("event %+v", e)
	}
}
