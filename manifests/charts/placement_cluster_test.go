//go:build cluster

package charts_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/nodelabel"
	"github.com/headstart-mesh/headstart/shim/install/node"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// soon is for the API server, which takes a moment until a policy is in force.
func soon(t *testing.T, what string, is func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, is); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// The chart's policy and the control plane have the same names for volumes, and neither does more.
func TestPodsPreferNodesThatKeepTheirVolumes(t *testing.T) {
	s := install(t)
	const ns = "video"
	for _, create := range []func() error{
		func() error {
			_, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"zone": "a"}}}
			_, err := s.Client.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
			return err
		},
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	prefixes := []string{"s3://models/llama/", "s3://models/a b/größe/x=y.1/", "s3://videos/" + fmt.Sprintf("%070d", 7) + "/a/", "s3://models/"}
	keeps := map[string]*nodeapi.Keeps{"n1": {}}
	want := map[string]string{"zone": "a"}
	var terms []corev1.PreferredSchedulingTerm
	annotation := ""
	for k, p := range prefixes {
		keeps["n1"].Volumes = append(keeps["n1"].Volumes, &nodeapi.KeptVolume{Namespace: ns, Store: "default", Prefix: p, Bytes: 1 << 30})
		key := nodelabel.Key(ns, p)
		want[key] = "kept"
		terms = append(terms, term(100, key))
		if annotation != "" {
			annotation += ","
		}
		annotation += fmt.Sprintf("v%d=%s", k, p)
	}
	controlPlane := s.as(t, "headstart-controlplane", "n1")
	patch := func(patch string) error {
		_, err := controlPlane.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	if err := patch(`{}`); !apierrors.IsForbidden(err) {
		t.Errorf("without placement it may patch nodes: %v", err)
	}
	if _, older := apiservertest.Older(t, s.Client.Discovery(), "1.36"); older {
		said, err := program(t, values, "helm", "upgrade", "headstart", "headstart", "-f", "-", "--set", "placement.enabled=true", "--kubeconfig", s.config, "-n", namespace)
		if err == nil || !strings.Contains(said, "Kubernetes has from 1.36 on; leave it false") {
			t.Errorf("the chart does not refuse it: %v, %s", err, said)
		}
	}
	apiservertest.Since(t, s.Client.Discovery(), "1.36", "MutatingAdmissionPolicy v1")
	s.helm(t, values, "upgrade", "headstart", "headstart", "-f", "-", "--set", "placement.enabled=true")

	t.Run("nodes", func(t *testing.T) {
		refused := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }
		tries := 0
		soon(t, "the policy", func(context.Context) (bool, error) {
			tries++
			return patch(`{}`) == nil && refused(patch(fmt.Sprintf(`{"metadata": {"annotations": {"try": "%d"}}}`, tries))), nil
		})
		for _, p := range []string{
			`{"metadata": {"labels": {"zone": "b"}}}`, `{"metadata": {"labels": {"zone": null}}}`,
			`{"metadata": {"labels": {"headstart.dev/node": "ready"}}}`, `{"metadata": {"annotations": {"a": "b"}}}`,
			`{"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}`,
		} {
			if err := patch(p); !refused(err) {
				t.Errorf("patch %s: %v", p, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		labels := &nodelabel.Labels{Nodes: controlPlane.CoreV1().Nodes(), Keeps: func() map[string]*nodeapi.Keeps { return keeps }, Log: slog.Default()}
		go func() { labels.Run(ctx); close(done) }()
		has := func(want map[string]string) func(context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) {
				n, err := s.Client.CoreV1().Nodes().Get(ctx, "n1", metav1.GetOptions{})
				return err == nil && maps.Equal(n.Labels, want), err
			}
		}
		soon(t, "the labels", has(want))
		cancel()
		<-done
		own := &node.Node{Name: "n1", Client: s.as(t, "headstart-installer", "n1").CoreV1(), Log: slog.Default()}
		if err := own.SetReady(t.Context(), false); err != nil {
			t.Error(err)
		}
		soon(t, "no labels", has(map[string]string{"zone": "a"}))
	})

	created := func(affinity *corev1.Affinity, annotations map[string]string) *corev1.Affinity {
		t.Helper()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-", Annotations: annotations},
			Spec: corev1.PodSpec{Affinity: affinity, RuntimeClassName: new("headstart"), Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		p, err := s.Client.CoreV1().Pods(ns).Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p.Spec.Affinity
	}
	with := map[string]string{"headstart.dev/volumes": annotation}
	soon(t, "the affinity", func(context.Context) (bool, error) { return created(nil, with) != nil, nil })
	own := term(7, "own")
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{own.Preference}}
	prefers := func(required *corev1.NodeSelector, terms ...corev1.PreferredSchedulingTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: required, PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	avoids, both := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}, prefers(nil, terms...)
	both.PodAntiAffinity = avoids.PodAntiAffinity
	for name, in := range map[string]struct {
		annotations map[string]string
		given, want *corev1.Affinity
	}{
		"nothing of its own":  {with, nil, prefers(nil, terms...)},
		"one volume":          {map[string]string{"headstart.dev/volumes": "m=" + prefixes[0]}, nil, prefers(nil, terms[0])},
		"no volumes":          {nil, nil, nil},
		"another annotation":  {map[string]string{"headstart.dev/input": "s3://models/x"}, nil, nil},
		"a preference":        {with, prefers(nil, own), prefers(nil, slices.Concat([]corev1.PreferredSchedulingTerm{own}, terms)...)},
		"a requirement":       {with, prefers(required), prefers(required, terms...)},
		"pods that it avoids": {with, avoids, both},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(in.want, created(in.given, in.annotations)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func term(weight int32, key string) corev1.PreferredSchedulingTerm {
	return corev1.PreferredSchedulingTerm{Weight: weight, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}}}
}
