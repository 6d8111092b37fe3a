// Package apiservertest runs a Kubernetes API server of a test's own, with its etcd and
// what else the test starts beside it, on free ports of 127.0.0.1. There is no controller
// and no kubelet: pods stay as a test writes them. Tests that use it have the build tag
// cluster.
package apiservertest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

// binariesVariable names the directory of the test cluster's programs; without it, they are
// where e2e/cluster keeps them.
const binariesVariable = "HEADSTART_CLUSTER_BIN"

// binariesDefault is in the user's cache directory.
const binariesDefault = "headstart/cluster-1.36.3"

const (
	// readyTimeout covers a machine that compiles at the same time.
	readyTimeout = 1 * time.Minute
	readyPoll    = 100 * time.Millisecond
	// logShown is how much of a program's log a failed test shows: the end, in bytes.
	logShown = 8000
)

// Server is one API server. It ends with its test.
type Server struct {
	// Config is the cluster administrator's.
	Config *rest.Config
	// Client is the cluster administrator's.
	Client kubernetes.Interface
}

// Start returns a ready API server.
func Start(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	token := secrets(t, dir)
	etcd, peer, secure := "127.0.0.1:"+FreePort(t), "127.0.0.1:"+FreePort(t), FreePort(t)
	Run(t, dir, nil, Binary(t, "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync=true", "--log-level=warn",
		"--listen-client-urls=http://"+etcd, "--advertise-client-urls=http://"+etcd,
		"--listen-peer-urls=http://"+peer, "--initial-advertise-peer-urls=http://"+peer, "--initial-cluster=default=http://"+peer)
	Run(t, dir, nil, Binary(t, "kube-apiserver"), "--etcd-servers=http://"+etcd, "--bind-address=127.0.0.1", "--secure-port="+secure,
		"--cert-dir="+filepath.Join(dir, "apiserver"), "--token-auth-file="+filepath.Join(dir, "tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+filepath.Join(dir, "sa.pub"), "--service-account-signing-key-file="+filepath.Join(dir, "sa.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
		// Nothing makes service accounts here, and tests make what they need.
		"--disable-admission-plugins=ServiceAccount")
	s := &Server{Config: &rest.Config{Host: "https://127.0.0.1:" + secure, BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "apiserver", "apiserver.crt")},
		QPS:             -1}}
	s.waitUntilReady(t)
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	s.Client = client
	return s
}

// Kubeconfig writes the cluster administrator's, for programs, and returns the file.
func (s *Server) Kubeconfig(t testing.TB) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.Config.Host, CertificateAuthority: s.Config.CAFile}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: s.Config.BearerToken}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Since skips a test of something that Kubernetes has from a version on only, if the API server is older.
func Since(t testing.TB, server discovery.ServerVersionInterface, oldest, something string) {
	t.Helper()
	if v, older := Older(t, server, oldest); older {
		t.Skipf("the API server is %s, and %s is there from Kubernetes %s on", v, something, oldest)
	}
}

// Older tells whether the API server is older than a version, and returns its own.
func Older(t testing.TB, server discovery.ServerVersionInterface, than string) (own string, older bool) {
	t.Helper()
	info, err := server.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		t.Fatal(err)
	}
	return info.GitVersion, v.LessThan(version.MustParseGeneric(than))
}

// Binary is the path of one of the test cluster's programs, such as etcd or helm.
func Binary(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv(binariesVariable)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, binariesDefault)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("$%s: %v; make it by e2e/cluster/build.sh", binariesVariable, err)
	}
	return path
}

func (s *Server) waitUntilReady(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	var reason error
	for {
		err := s.ready(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			reason = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the API server is not ready: %v", reason)
		}
	}
}

func (s *Server) ready(ctx context.Context) error {
	// The file comes with the server.
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
	return err
}

// secrets writes what the API server reads at its start, and returns the
// administrator's token.
func secrets(t testing.TB, dir string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	random := make([]byte, 16)
	rand.Read(random) // it does not fail
	token := hex.EncodeToString(random)
	for name, content := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte(token + `,admin,admin,"system:masters"` + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return token
}

// FreePort returns a port for a program's flag.
func FreePort(t testing.TB) string {
	t.Helper()
	return strconv.Itoa(int(porttest.Free(t)))
}

// Run starts a program in dir, with variables besides the test's own, which ends with the
// test, or with the test's process. Its output is in dir, as <name>.log; the end of it is
// shown if the test fails. It is killed: what it has stored goes with the test.
func Run(t testing.TB, dir string, env []string, program string, args ...string) {
	t.Helper()
	name := filepath.Base(program)
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), log, log
	// A group of its own: the terminal's Ctrl-C is for the test, which ends it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()         // by a signal
		text, err := os.ReadFile(log.Name())
		if errors.Join(err, log.Close()) == nil && t.Failed() {
			t.Logf("the end of %s's log:\n%s", name, text[max(0, len(text)-logShown):])
		}
	})
}
