package identity_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/headstart-mesh/headstart/control-plane/identity"
)

// storeSuite is what any store does. public reads what it shows to the daemons.
func storeSuite(t *testing.T, open func(t *testing.T) (store identity.Store, public func() string)) {
	t.Run("keeps the first", func(t *testing.T) {
		s, _ := open(t)
		ctx := t.Context()
		if _, err := s.Load(ctx); !errors.Is(err, identity.ErrEmpty) {
			t.Fatalf("an empty store: %v", err)
		}
		first := material(t)
		if err := s.Create(ctx, first); err != nil {
			t.Fatal(err)
		}
		if err := s.Create(ctx, material(t)); !errors.Is(err, identity.ErrExists) {
			t.Fatalf("a second: %v", err)
		}
		got, err := s.Load(ctx)
		if err != nil || string(got.Certificate) != string(first.Certificate) || string(got.Key) != string(first.Key) {
			t.Fatalf("%v; another one is kept", err)
		}
	})
	t.Run("replicas agree", func(t *testing.T) {
		s, public := open(t)
		const replicas = 8
		var got [replicas]string
		var wg sync.WaitGroup
		for i := range replicas {
			wg.Go(func() {
				a, err := identity.Open(t.Context(), s, namespace)
				if err != nil {
					t.Error(err)
					return
				}
				got[i] = string(a.Certificate())
			})
		}
		wg.Wait()
		for i := range got {
			if got[i] == "" || got[i] != got[0] || public() != got[0] {
				t.Errorf("replica %d has an authority of its own", i)
			}
		}
	})
	t.Run("shows the certificate again", func(t *testing.T) {
		s, public := open(t)
		for _, text := range []string{"one", "two", "two"} {
			if err := s.Publish(t.Context(), []byte(text)); err != nil || public() != text {
				t.Errorf("%v; public is %q", err, public())
			}
		}
	})
}

// material is an authority that is not kept anywhere else.
func material(t *testing.T) identity.Material {
	t.Helper()
	s := &memory{}
	if _, err := identity.Open(t.Context(), s, namespace); err != nil {
		t.Fatal(err)
	}
	m, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// memory is the Store of tests that are about something else.
type memory struct {
	mu     sync.Mutex
	kept   identity.Material
	public string
}

func (m *memory) String() string { return "the memory" }

func (m *memory) Load(context.Context) (identity.Material, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept.Key == nil {
		return identity.Material{}, identity.ErrEmpty
	}
	return m.kept, nil
}

func (m *memory) Create(_ context.Context, made identity.Material) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept.Key != nil {
		return identity.ErrExists
	}
	m.kept = made
	return nil
}

func (m *memory) Replace(_ context.Context, made identity.Material) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = made
	return nil
}

func (m *memory) Publish(_ context.Context, certificate []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.public = string(certificate)
	return nil
}

func TestMemoryStore(t *testing.T) {
	storeSuite(t, func(*testing.T) (identity.Store, func() string) {
		m := &memory{}
		return m, func() string {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.public
		}
	})
}

func TestSecretStore(t *testing.T) {
	storeSuite(t, func(t *testing.T) (identity.Store, func() string) {
		client := fake.NewClientset()
		return identity.NewSecretStore(client, namespace), func() string {
			c, err := client.CoreV1().ConfigMaps(namespace).Get(context.Background(), "headstart-ca", metav1.GetOptions{})
			if err != nil {
				t.Error(err)
				return ""
			}
			return c.Data["ca.crt"]
		}
	})
}

// An installer may bring both objects, so that it takes them away again.
func TestSecretStoreFillsWhatAnInstallerMade(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "headstart-ca", Namespace: namespace, Labels: map[string]string{"chart": "headstart"}}
	client := fake.NewClientset(&corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque}, &corev1.ConfigMap{ObjectMeta: meta})
	first, err := identity.Open(t.Context(), identity.NewSecretStore(client, namespace), namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() == "create" {
			t.Errorf("%s were created", a.GetResource().Resource)
		}
	}
	secret, err := client.CoreV1().Secrets(namespace).Get(t.Context(), "headstart-ca", metav1.GetOptions{})
	if err != nil || secret.Labels["chart"] != "headstart" {
		t.Errorf("%v; labels %v", err, secret.Labels)
	}
	again, err := identity.Open(t.Context(), identity.NewSecretStore(client, namespace), namespace)
	if err != nil || string(again.Certificate()) != string(first.Certificate()) {
		t.Errorf("%v; a restart has another authority", err)
	}
}
