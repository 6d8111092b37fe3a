//go:build cluster

package mesh_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/mesh"
)

// istiod is a real one, with the API server that it needs.
type istiod struct {
	t      *testing.T
	dir    string
	server string
	client *http.Client
}

func (i *istiod) run(env []string, name string, args ...string) {
	i.t.Helper()
	bin := os.Getenv("HEADSTART_CLUSTER_BIN")
	if bin == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			i.t.Fatal(err)
		}
		bin = filepath.Join(cache, "headstart", "cluster-1.36.3")
	}
	out, err := os.Create(filepath.Join(i.dir, name+".log"))
	if err != nil {
		i.t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, name), args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = i.dir, append(os.Environ(), env...), out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		out.Close()
		if text, _ := os.ReadFile(out.Name()); i.t.Failed() {
			i.t.Logf("%s:\n%s", name, text[max(0, len(text)-6000):])
		}
	})
}

// call asks the API server as its administrator; into may be nil.
func (i *istiod) call(method, path string, body, into any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(i.t.Context(), method, i.server+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Authorization": {"Bearer admin"}, "Content-Type": {"application/json"}}
	answer, err := i.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s: %d %s %w", path, answer.StatusCode, got, err)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(got, into)
}

func (i *istiod) eventually(what string, try func() error) {
	i.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			i.t.Fatalf("%s: %v", what, err)
		}
	}
}

func port(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, p, _ := net.SplitHostPort(l.Addr().String())
	return p
}

func (i *istiod) write(name, text string) string {
	i.t.Helper()
	path := filepath.Join(i.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		i.t.Fatal(err)
	}
	return path
}

// startIstiod returns the address of its certificate service.
func startIstiod(t *testing.T) (i *istiod, authority string) {
	t.Helper()
	etcd, peer, api := port(t), port(t), port(t)
	i = &istiod{t: t, dir: t.TempDir(), server: "https://127.0.0.1:" + api}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // it makes its certificate at its start
	t.Cleanup(transport.CloseIdleConnections)
	i.client = &http.Client{Transport: transport, Timeout: 10 * time.Second}
	i.run(nil, "etcd", "--data-dir", "etcd", "--unsafe-no-fsync=true", "--log-level=warn",
		"--listen-client-urls", "http://127.0.0.1:"+etcd, "--advertise-client-urls", "http://127.0.0.1:"+etcd,
		"--listen-peer-urls", "http://127.0.0.1:"+peer, "--initial-advertise-peer-urls", "http://127.0.0.1:"+peer,
		"--initial-cluster", "default=http://127.0.0.1:"+peer)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	i.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
	i.write("tokens.csv", "admin,admin,1,system:masters\n")
	i.run(nil, "kube-apiserver", "--etcd-servers=http://127.0.0.1:"+etcd, "--bind-address=127.0.0.1", "--secure-port="+api, "--cert-dir=certs",
		"--service-cluster-ip-range=10.97.0.0/24", "--authorization-mode=RBAC", "--token-auth-file=tokens.csv",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	for _, ns := range []string{"istio-system", "headstart-system"} {
		i.eventually("namespace "+ns, func() error {
			return i.call(http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": ns}}, nil)
		})
	}
	i.write("kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],`+
		`"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}],"users":[{"name":"u","user":{"token":"admin"}}]}`, i.server))
	i.write("mesh.yaml", "{}\n")
	secure := port(t)
	i.run([]string{"POD_NAMESPACE=istio-system", "POD_NAME=istiod-1", "ISTIOD_CUSTOM_HOST=localhost", "INJECTION_WEBHOOK_CONFIG_NAME=", "VALIDATION_WEBHOOK_CONFIG_NAME="},
		"pilot-discovery", "discovery", "--kubeconfig", "kubeconfig", "--meshConfig", "mesh.yaml", "--networksConfig", "/nonexistent",
		"--grpcAddr", "", "--secureGRPCAddr", "127.0.0.1:"+secure, "--httpAddr", "127.0.0.1:"+port(t), "--httpsAddr", "",
		"--monitoringAddr", "127.0.0.1:"+port(t), "--ctrlz_port", port(t), "--ctrlz_address", "127.0.0.1")
	return i, "localhost:" + secure
}

// The certificate request, the token and the answer are as the real authority has them.
func TestTheAuthorityOfARealIstiod(t *testing.T) {
	i, authority := startIstiod(t)
	account := "/api/v1/namespaces/headstart-system/serviceaccounts"
	if err := i.call(http.MethodPost, account, map[string]any{"metadata": map[string]any{"name": "headstart-node"}}, nil); err != nil {
		t.Fatal(err)
	}
	var issued struct{ Status struct{ Token string } }
	err := i.call(http.MethodPost, account+"/headstart-node/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{"audiences": []string{"istio-ca"}},
	}, &issued)
	if err != nil {
		t.Fatal(err)
	}
	var roots struct{ Data map[string]string }
	i.eventually("the mesh's roots", func() error {
		return i.call(http.MethodGet, "/api/v1/namespaces/headstart-system/configmaps/istio-ca-root-cert", nil, &roots)
	})
	var said bytes.Buffer
	c, err := mesh.New(t.Context(), mesh.Config{
		Authority: authority, RootFile: i.write("root-cert.pem", roots.Data["root-cert.pem"]), TokenFile: i.write("token", issued.Status.Token),
		Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	i.eventually("a certificate", func() error {
		if c.NotAfter().IsZero() {
			return context.DeadlineExceeded
		}
		return nil
	})
	c.Close() // before said is read
	if !bytes.Contains(said.Bytes(), []byte(daemonIdentity)) {
		t.Error(said.String())
	}
	if left := time.Until(c.NotAfter()); left < 20*time.Hour {
		t.Errorf("it is good for %v", left)
	}
}
