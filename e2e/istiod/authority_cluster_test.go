//go:build cluster

// Package istiod_test has the node's side meet a real istiod.
package istiod_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/shim/mesh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	namespace = "headstart-system"
	account   = "headstart-node"
	identity  = "spiffe://cluster.local/ns/" + namespace + "/sa/" + account
	// audience is what istiod's authority asks of a token.
	audience = "istio-ca"
	// patience is more than istiod needs on a busy machine.
	patience = time.Minute
)

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startIstiod returns the address of its certificate service.
func startIstiod(t *testing.T, s *apiservertest.Server) string {
	t.Helper()
	port := apiservertest.FreePort(t)
	apiservertest.Run(t, t.TempDir(), []string{"POD_NAMESPACE=istio-system", "POD_NAME=istiod-1", "ISTIOD_CUSTOM_HOST=localhost",
		"INJECTION_WEBHOOK_CONFIG_NAME=", "VALIDATION_WEBHOOK_CONFIG_NAME="},
		apiservertest.Binary(t, "pilot-discovery"), "discovery", "--kubeconfig", s.Kubeconfig(t), "--meshConfig", write(t, "mesh.yaml", "{}\n"), "--networksConfig", "/nonexistent",
		"--grpcAddr", "", "--secureGRPCAddr", "127.0.0.1:"+port, "--httpAddr", "127.0.0.1:"+apiservertest.FreePort(t), "--httpsAddr", "",
		"--monitoringAddr", "127.0.0.1:"+apiservertest.FreePort(t), "--ctrlz_port", apiservertest.FreePort(t), "--ctrlz_address", "127.0.0.1")
	return "localhost:" + port
}

// tokenOf is a token of the daemons' account for the mesh's authority, as a pod has it.
func tokenOf(t *testing.T, s *apiservertest.Server) string {
	t.Helper()
	accounts := s.Client.CoreV1().ServiceAccounts(namespace)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := accounts.CreateToken(t.Context(), account, &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{Audiences: []string{audience}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// The certificate request, the token and the answer are as the real authority has them.
func TestTheAuthorityOfARealIstiod(t *testing.T) {
	s := apiservertest.Start(t)
	for _, name := range []string{"istio-system", namespace} {
		if _, err := s.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	authority, token := startIstiod(t, s), tokenOf(t, s)
	var roots *corev1.ConfigMap
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (_ bool, err error) {
		roots, err = s.Client.CoreV1().ConfigMaps(namespace).Get(ctx, "istio-ca-root-cert", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatalf("istiod does not publish its roots: %v", err)
	}
	said, log := io.Pipe()
	c, err := mesh.New(t.Context(), mesh.Config{
		Authority: authority, RootFile: write(t, "root-cert.pem", roots.Data["root-cert.pem"]), TokenFile: write(t, "token", token),
		Log: slog.New(slog.NewJSONHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer said.Close() // before: nobody reads what is said any more
	late := time.AfterFunc(patience, func() { log.CloseWithError(errors.New("no certificate came")) })
	defer late.Stop()
	var got struct {
		Identity string
		Until    time.Time
		Error    string // of an attempt before
	}
	for words := json.NewDecoder(said); got.Identity == ""; {
		if err := words.Decode(&got); err != nil {
			t.Fatalf("%v; %s", err, got.Error)
		}
	}
	if got.Identity != identity {
		t.Errorf("it is for %s", got.Identity)
	}
	if left := time.Until(got.Until); left < 20*time.Hour {
		t.Errorf("it is good for %v", left)
	}
}
