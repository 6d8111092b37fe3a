package identity

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// What a SecretStore keeps in the control plane's namespace.
const (
	// SecretName is the Secret with certificate and key, as tls.crt and tls.key.
	SecretName = "headstart-ca"
	// ConfigMapName is the ConfigMap with the certificate alone, for the daemons.
	ConfigMapName = "headstart-ca"
	// ConfigMapKey is the certificate's key in the ConfigMap.
	ConfigMapKey = "ca.crt"
	// RevokedName is the ConfigMap whose keys are the revoked nodes. Operators write it; the control plane reads it.
	RevokedName = "headstart-revoked"
)

// Further keys of the Secret.
const (
	keyNextCertificate, keyNextKey = "next.crt", "next.key"
	// keySince is when the signer replaced the one before.
	keySince = "since"
	// keyRotate, with any value, asks for another authority.
	keyRotate = "rotate"
)

// managed are the labels of what the control plane makes by itself.
func managed() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "headstart", "app.kubernetes.io/part-of": "headstart"}
}

// SecretStore keeps the authority in a Secret. Secret and ConfigMap may have been made
// by an installer, empty: the store then needs no right to create any, and what
// installed them takes them away.
type SecretStore struct {
	client    kubernetes.Interface
	namespace string
}

// NewSecretStore returns the store in a namespace. It needs get and update of Secret
// and ConfigMap headstart-ca there, and create if they may be absent.
func NewSecretStore(client kubernetes.Interface, namespace string) SecretStore {
	return SecretStore{client, namespace}
}

func (s SecretStore) String() string { return "Secret " + s.namespace + "/" + SecretName }

// Load implements Store.
func (s SecretStore) Load(ctx context.Context) (Material, error) {
	secret, err := s.client.CoreV1().Secrets(s.namespace).Get(ctx, SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Material{}, ErrEmpty
	}
	if err != nil {
		return Material{}, fmt.Errorf("reading %s: %w", s, err)
	}
	if empty(secret) {
		return Material{}, ErrEmpty
	}
	_, rotate := secret.Data[keyRotate]
	return Material{
		Certificate: secret.Data[corev1.TLSCertKey], Key: secret.Data[corev1.TLSPrivateKeyKey],
		NextCertificate: secret.Data[keyNextCertificate], NextKey: secret.Data[keyNextKey],
		Since: string(secret.Data[keySince]), Rotate: rotate, version: secret.ResourceVersion,
	}, nil
}

// Replace implements Store.
func (s SecretStore) Replace(ctx context.Context, m Material) error {
	secrets := s.client.CoreV1().Secrets(s.namespace)
	secret, err := secrets.Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading %s: %w", s, err)
	}
	secret.ResourceVersion = m.version
	secret.Data = map[string][]byte{corev1.TLSCertKey: m.Certificate, corev1.TLSPrivateKeyKey: m.Key}
	for key, value := range map[string][]byte{
		keyNextCertificate: m.NextCertificate, keyNextKey: m.NextKey, keySince: []byte(m.Since),
	} {
		if len(value) > 0 {
			secret.Data[key] = value
		}
	}
	if m.Rotate {
		secret.Data[keyRotate] = nil
	}
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return ErrExists
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", s, err)
	}
	return nil
}

// Revoked returns the names of the revoked nodes. Without the ConfigMap there are none.
func (s SecretStore) Revoked(ctx context.Context) ([]string, error) {
	m, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, RevokedName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", s.namespace, RevokedName, err)
	}
	return slices.Sorted(maps.Keys(m.Data)), nil
}

func empty(s *corev1.Secret) bool {
	return len(s.Data[corev1.TLSCertKey]) == 0 && len(s.Data[corev1.TLSPrivateKeyKey]) == 0
}

// Create implements Store. The API server lets one creation of a name succeed, and one
// update of a version.
func (s SecretStore) Create(ctx context.Context, m Material) error {
	secrets := s.client.CoreV1().Secrets(s.namespace)
	data := map[string][]byte{corev1.TLSCertKey: m.Certificate, corev1.TLSPrivateKeyKey: m.Key}
	there, err := secrets.Get(ctx, SecretName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: SecretName, Namespace: s.namespace, Labels: managed()},
			Type:       corev1.SecretTypeTLS,
			Data:       data,
		}, metav1.CreateOptions{})
	case err == nil && !empty(there):
		return ErrExists
	case err == nil:
		there.Data = data
		_, err = secrets.Update(ctx, there, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return ErrExists
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", s, err)
	}
	return nil
}

// publishTries: another replica may publish the same at the same time.
const publishTries = 3

// Publish implements Store.
func (s SecretStore) Publish(ctx context.Context, certificate []byte) error {
	var err error
	for range publishTries {
		if err = s.publish(ctx, string(certificate)); !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s/%s: %w", s.namespace, ConfigMapName, err)
	}
	return nil
}

func (s SecretStore) publish(ctx context.Context, certificate string) error {
	maps := s.client.CoreV1().ConfigMaps(s.namespace)
	there, err := maps.Get(ctx, ConfigMapName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: ConfigMapName, Namespace: s.namespace, Labels: managed()},
			Data:       map[string]string{ConfigMapKey: certificate},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil || there.Data[ConfigMapKey] == certificate {
		return err
	}
	there.Data = map[string]string{ConfigMapKey: certificate}
	_, err = maps.Update(ctx, there, metav1.UpdateOptions{})
	return err
}
