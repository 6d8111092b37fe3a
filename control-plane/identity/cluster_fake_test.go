package identity_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/headstart-mesh/headstart/control-plane/identity"
)

// reviewed is a cluster whose API server says s of every token.
func reviewed(s authv1.TokenReviewStatus, err error) identity.Cluster {
	client := fake.NewClientset()
	client.PrependReactor("create", "tokenreviews", func(a kubetesting.Action) (bool, runtime.Object, error) {
		r := a.(kubetesting.CreateAction).GetObject().(*authv1.TokenReview).DeepCopy()
		if !cmp.Equal(r.Spec, authv1.TokenReviewSpec{Token: token, Audiences: []string{"headstart"}}) {
			return true, nil, errors.New("another question")
		}
		r.Status = s
		return true, r, err
	})
	return identity.NewCluster(client, namespace)
}

func extra(node, pod, uid string) map[string]authv1.ExtraValue {
	return map[string]authv1.ExtraValue{
		"authentication.kubernetes.io/node-name": {node},
		"authentication.kubernetes.io/pod-name":  {pod},
		"authentication.kubernetes.io/pod-uid":   {uid},
	}
}

func TestReview(t *testing.T) {
	status := func(change func(*authv1.TokenReviewStatus)) authv1.TokenReviewStatus {
		s := authv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"headstart"},
			User: authv1.UserInfo{Username: "system:serviceaccount:headstart-system:headstart-node", Extra: extra("node-1", "headstart-node-x1", "u1")}}
		change(&s)
		return s
	}
	got, err := reviewed(status(func(*authv1.TokenReviewStatus) {}), nil).Review(t.Context(), token)
	if err != nil || got != daemon {
		t.Errorf("%v, %v", got, err)
	}
	for what, c := range map[string]struct {
		change func(*authv1.TokenReviewStatus)
		want   error
	}{
		"not authenticated": {func(s *authv1.TokenReviewStatus) { s.Authenticated = false }, identity.ErrToken},
		"without audiences": {func(s *authv1.TokenReviewStatus) { s.Audiences = nil }, identity.ErrToken},
		"other audience":    {func(s *authv1.TokenReviewStatus) { s.Audiences = []string{"vault"} }, identity.ErrToken},
		"other account": {func(s *authv1.TokenReviewStatus) {
			s.User.Username = "system:serviceaccount:headstart-system:default"
		}, identity.ErrNotDaemon},
		"other namespace": {func(s *authv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:default:headstart-node" }, identity.ErrNotDaemon},
		"no account":      {func(s *authv1.TokenReviewStatus) { s.User.Username = "admin" }, identity.ErrNotDaemon},
		"no pod":          {func(s *authv1.TokenReviewStatus) { s.User.Extra = nil }, identity.ErrNoNode},
		"no node":         {func(s *authv1.TokenReviewStatus) { s.User.Extra = extra("", "headstart-node-x1", "u1") }, identity.ErrNoNode},
		"two nodes": {func(s *authv1.TokenReviewStatus) {
			s.User.Extra["authentication.kubernetes.io/node-name"] = []string{"node-1", "node-2"}
		}, identity.ErrNoNode},
	} {
		if got, err := reviewed(status(c.change), nil).Review(t.Context(), token); !errors.Is(err, c.want) || got != (identity.Pod{}) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	_, err = reviewed(authv1.TokenReviewStatus{}, errors.New("forbidden")).Review(t.Context(), token)
	if err == nil || errors.Is(err, identity.ErrToken) || !strings.Contains(err.Error(), "forbidden") {
		t.Error(err)
	}
}

func TestPodIPs(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: daemon.Name, UID: "u1"}, Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.244.1.5"}, {IP: "fd00::5"}, {IP: "junk"}}}}
	c := identity.NewCluster(fake.NewClientset(pod), namespace)
	got, err := c.PodIPs(t.Context(), daemon)
	if err != nil || len(got) != 2 || got[0] != netip.MustParseAddr("10.244.1.5") || got[1] != netip.MustParseAddr("fd00::5") {
		t.Errorf("%v, %v", got, err)
	}
	for what, p := range map[string]identity.Pod{
		"gone":                  {Namespace: namespace, Name: "headstart-node-x2", UID: "u1", Node: "node-1"},
		"another of that name":  {Namespace: namespace, Name: daemon.Name, UID: "u2", Node: "node-1"},
		"moved to another node": {Namespace: namespace, Name: daemon.Name, UID: "u1", Node: "node-2"},
	} {
		if got, err := c.PodIPs(t.Context(), p); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
}
