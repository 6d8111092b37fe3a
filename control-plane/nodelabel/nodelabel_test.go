package nodelabel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/headstart-mesh/headstart/control-plane/nodelabel"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKey(t *testing.T) {
	for prefix, want := range map[string]string{
		"s3://models/llama/":                              "ml.volumes.headstart.dev/s3_models_llama",
		"s3://models/":                                    "ml.volumes.headstart.dev/s3_models",
		"s3://m.odels-1/v1.0/größe//":                     "ml.volumes.headstart.dev/s3_m_odels_1_v1_0_gr_e",
		"s3://models/" + strings.Repeat("a/", 40):         "ml.volumes.headstart.dev/" + strings.Repeat("a_", 31) + "a",
		"s3://models/" + strings.Repeat("b", 62) + "/c/":  "ml.volumes.headstart.dev/" + strings.Repeat("b", 61) + "_c",
		"s3://models/b/" + strings.Repeat("d", 62) + "/":  "ml.volumes.headstart.dev/" + strings.Repeat("d", 62),
		"s3://models/" + strings.Repeat("e", 1000) + "//": "ml.volumes.headstart.dev/" + strings.Repeat("e", 63),
	} {
		got := nodelabel.Key("ml", prefix)
		if got != want {
			t.Errorf("%s is %s, and not %s", prefix, got, want)
		}
		if wrong := validation.IsQualifiedName(got); len(wrong) > 0 {
			t.Errorf("%s: %v", got, wrong)
		}
	}
}

const mib = 1 << 20

func kept(namespace, prefix string, bytes int64) *nodeapi.KeptVolume {
	return &nodeapi.KeptVolume{Namespace: namespace, Store: "default", Prefix: prefix, Bytes: bytes}
}

// A node, and a namespace, may say more than a node's labels have room for.
func TestOf(t *testing.T) {
	m := &nodeapi.Keeps{Volumes: []*nodeapi.KeptVolume{
		kept("ml", "s3://models/small/", 63*mib), kept("ml", "s3://models/llama/", 64*mib),
		kept("../ml", "s3://models/llama/", 64*mib), kept("", "s3://models/llama/", 64*mib), kept("ml", "//", 64*mib),
	}}
	if got := nodelabel.Of(m); len(got) != 1 || got["ml.volumes.headstart.dev/s3_models_llama"] == "" {
		t.Errorf("%v", got)
	}
	for k := range 20 {
		m.Volumes = append(m.Volumes, kept("ml", fmt.Sprintf("s3://models/%d/", k), int64(100+k)*mib))
	}
	got := nodelabel.Of(m)
	if len(got) != 16 || got["ml.volumes.headstart.dev/s3_models_19"] == "" || got["ml.volumes.headstart.dev/s3_models_0"] != "" {
		t.Errorf("%d labels: %v", len(got), got)
	}
	for k := range 200 {
		m.Volumes = append(m.Volumes, kept(fmt.Sprintf("ns%d", k), "s3://models/llama/", 64*mib))
	}
	if got := nodelabel.Of(m); len(got) != 128 {
		t.Errorf("%d labels", len(got))
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}})
		var writes, away atomic.Int64
		client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes.Add(1)
			return away.Load() > 0, nil, errors.New("away")
		})
		var keeps atomic.Pointer[nodeapi.Keeps]
		l := &nodelabel.Labels{Nodes: client.CoreV1().Nodes(), Log: slog.New(slog.DiscardHandler),
			Keeps: func() map[string]*nodeapi.Keeps { return map[string]*nodeapi.Keeps{"n1": keeps.Load()} }}
		keeps.Store(&nodeapi.Keeps{Volumes: []*nodeapi.KeptVolume{kept("ml", "s3://models/llama/", 64*mib)}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { l.Run(ctx); close(done) }()
		before := int64(0)
		labels := func(after time.Duration, want map[string]string, requests int64) {
			t.Helper()
			defer func() { before = writes.Load() }()
			time.Sleep(after)
			synctest.Wait()
			n, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if want["zone"] = "a"; !maps.Equal(n.Labels, want) || writes.Load()-before != requests {
				t.Errorf("the node has %v, and not %v, after %d requests", n.Labels, want, writes.Load()-before)
			}
		}
		const llama, whisper = "ml.volumes.headstart.dev/s3_models_llama", "ml.volumes.headstart.dev/s3_models_whisper"
		labels(time.Second, map[string]string{llama: "kept"}, 1)
		labels(time.Minute, map[string]string{llama: "kept"}, 0)
		keeps.Store(&nodeapi.Keeps{Volumes: []*nodeapi.KeptVolume{kept("ml", "s3://models/whisper/", 64*mib)}})
		away.Store(1)
		labels(12*time.Second, map[string]string{llama: "kept"}, 2)
		away.Store(0)
		labels(5*time.Second, map[string]string{whisper: "kept"}, 1)
		labels(10*time.Minute, map[string]string{whisper: "kept"}, 1)
		keeps.Store(&nodeapi.Keeps{})
		labels(5*time.Second, map[string]string{}, 1)
		cancel()
		<-done
	})
}
