//go:build cluster

package identity_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/identity"
)

// inNamespace makes a namespace with the daemons' service account and another one.
func inNamespace(t *testing.T, s *apiservertest.Server, name string) {
	t.Helper()
	if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, account := range []string{"headstart-node", "default"} {
		if _, err := s.Client.CoreV1().ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// pod makes a pod on a node, with an address, as kubelet would.
func pod(t *testing.T, s *apiservertest.Server, namespace, name, account, node, ip string) *corev1.Pod {
	t.Helper()
	p, err := s.Client.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.PodIP, p.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	if p, err = s.Client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return p
}

// projected is a token as kubelet projects it into p; with no pod, one that is bound to
// nothing.
func projected(t *testing.T, s *apiservertest.Server, namespace, account, audience string, p *corev1.Pod) string {
	t.Helper()
	expires := int64(time.Hour / time.Second)
	r := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &expires}}
	if p != nil {
		r.Spec.BoundObjectRef = &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}
	}
	r, err := s.Client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

func TestOnARealAPIServer(t *testing.T) {
	s := apiservertest.Start(t)
	t.Run("SecretStore", func(t *testing.T) {
		n := 0
		storeSuite(t, func(t *testing.T) (identity.Store, func() string) {
			n++
			ns := "store-" + string(rune('a'+n))
			inNamespace(t, s, ns)
			return identity.NewSecretStore(s.Client, ns), publicOf(s, ns)
		})
	})
	t.Run("SecretStore that an installer made", func(t *testing.T) {
		n := 0
		storeSuite(t, func(t *testing.T) (identity.Store, func() string) {
			n++
			ns := "made-" + string(rune('a'+n))
			inNamespace(t, s, ns)
			meta := metav1.ObjectMeta{Name: "headstart-ca"}
			if _, err := s.Client.CoreV1().Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			return identity.NewSecretStore(s.Client, ns), publicOf(s, ns)
		})
	})
	t.Run("from token to certificate", func(t *testing.T) { tokenToCertificate(t, s) })
}

func publicOf(s *apiservertest.Server, namespace string) func() string {
	return func() string {
		c, err := s.Client.CoreV1().ConfigMaps(namespace).Get(context.Background(), "headstart-ca", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return c.Data["ca.crt"]
	}
}

func tokenToCertificate(t *testing.T, s *apiservertest.Server) {
	inNamespace(t, s, namespace)
	a, err := identity.Open(t.Context(), identity.NewSecretStore(s.Client, namespace), namespace)
	if err != nil {
		t.Fatal(err)
	}
	c := identity.NewCluster(s.Client, namespace)
	served := serve(t, a, c)
	p := pod(t, s, namespace, "headstart-node-x1", "headstart-node", "node-1", "10.244.1.5")
	good := projected(t, s, namespace, "headstart-node", "headstart", p)

	answer, err := served.issue(t.Context(), request(t, newKey(t), "10.244.1.5"), "Bearer "+good)
	if err != nil {
		t.Fatal(err)
	}
	if cert := certificate(t, answer.GetCertificate()); cert.Subject.CommonName != "node-1" || len(cert.IPAddresses) != 1 {
		t.Errorf("certificate of %s with %v", cert.Subject, cert.IPAddresses)
	}
	got, err := c.Review(t.Context(), good)
	if want := (identity.Pod{Namespace: namespace, Name: p.Name, UID: string(p.UID), Node: "node-1"}); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := served.issue(t.Context(), request(t, newKey(t), "10.244.2.9"), "Bearer "+good); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another's address: %v", err)
	}

	other := pod(t, s, namespace, "other", "default", "node-1", "10.244.1.6")
	inNamespace(t, s, "elsewhere")
	far := pod(t, s, "elsewhere", "headstart-node-x1", "headstart-node", "node-1", "10.244.1.7")
	for what, c := range map[string]struct {
		token string
		want  error
		code  codes.Code
	}{
		"the API server's audience": {projected(t, s, namespace, "headstart-node", "https://kubernetes.default.svc", p), identity.ErrToken, codes.Unauthenticated},
		"another account":           {projected(t, s, namespace, "default", "headstart", other), identity.ErrNotDaemon, codes.PermissionDenied},
		"another namespace":         {projected(t, s, "elsewhere", "headstart-node", "headstart", far), identity.ErrNotDaemon, codes.PermissionDenied},
		"bound to no pod":           {projected(t, s, namespace, "headstart-node", "headstart", nil), identity.ErrNoNode, codes.FailedPrecondition},
		"the administrator":         {s.Config.BearerToken, identity.ErrToken, codes.Unauthenticated},
		"not a token":               {"x.y.z", identity.ErrToken, codes.Unauthenticated},
	} {
		if _, err := identity.NewCluster(s.Client, namespace).Review(t.Context(), c.token); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := served.issue(t.Context(), request(t, newKey(t)), "Bearer "+c.token); status.Code(err) != c.code {
			t.Errorf("%s: answered %v", what, err)
		}
	}
	// The token of a pod that is gone is of no use to whoever kept it. The API server
	// remembers for some seconds what it said of a token, so each of these asks once.
	var kept []string
	for range 50 {
		kept = append(kept, projected(t, s, namespace, "headstart-node", "headstart", p))
	}
	zero := int64(0)
	if err := s.Client.CoreV1().Pods(namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
		t.Fatal(err)
	}
	for _, token := range kept {
		if _, err = c.Review(t.Context(), token); errors.Is(err, identity.ErrToken) {
			return
		}
		<-time.After(100 * time.Millisecond) // its own watch of pods is a little behind
	}
	t.Errorf("after the pod's end: %v", err)
}
