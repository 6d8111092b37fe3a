package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/cluster/pki"
)

const (
	kubeconfigFile = "kubeconfig"
	apiPort        = 6443
	// etcd is for the API server alone, and not where another one listens by default.
	etcdClients = "http://127.0.0.1:23790"
	etcdPeers   = "http://127.0.0.1:23800"
	// readyTimeout is for the API server, 3 s alone, and a node, 5 s alone, on a machine that
	// others keep busy.
	readyTimeout = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
	// requestTimeout bounds one request to the API server.
	requestTimeout = 5 * time.Second
	// nodeGrace is how long a node may be silent until it counts as lost: two and a half of the
	// kubelet's reports, where Kubernetes waits for five.
	nodeGrace = 25 * time.Second
	// admins is Kubernetes' group that may do everything.
	admins = "system:masters"
)

// server is the API server's URL.
func (s *supervisor) server() string { return "https://" + s.at(apiPort) }

func nodeParty(n Node) pki.Party {
	return pki.Party{User: "system:node:" + n.Name, Groups: []string{"system:nodes"}, Names: []string{n.Name}, Addresses: []netip.Addr{n.Address}}
}

// firstService is the address of the service "kubernetes".
func firstService() netip.Addr { return Services.Addr().Next() }

// writeCertificates writes the files that the control plane's processes read.
func (s *supervisor) writeCertificates() error {
	if err := os.MkdirAll(s.path("pki"), 0o700); err != nil {
		return err
	}
	signing, err := pki.SigningKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{"ca.crt": s.authority.PEM, "ca.key": s.authority.KeyPEM, "service-accounts.key": signing}
	for file, party := range map[string]pki.Party{
		"apiserver": {User: "kube-apiserver", Addresses: []netip.Addr{s.gateway(), firstService()},
			Names: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
		"kubelet-client": {User: "kube-apiserver-kubelet-client", Groups: []string{admins}},
		"front-proxy":    {User: "front-proxy"},
	} {
		pair, err := s.authority.Issue(party)
		if err != nil {
			return err
		}
		files[file+".crt"], files[file+".key"] = pair.Cert, pair.Key
	}
	for file, user := range map[string]string{"controller-manager": "system:kube-controller-manager", "scheduler": "system:kube-scheduler"} {
		if files[file+".kubeconfig"], err = s.kubeconfig(user); err != nil {
			return err
		}
	}
	for file, content := range files {
		if err := os.WriteFile(s.pki(file), content, 0o600); err != nil {
			return err
		}
	}
	admin, err := s.kubeconfig("headstart-test-admin", admins)
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(kubeconfigFile), admin, 0o600)
}

func (s *supervisor) kubeconfig(user string, groups ...string) ([]byte, error) {
	pair, err := s.authority.Issue(pki.Party{User: user, Groups: groups})
	if err != nil {
		return nil, err
	}
	return s.authority.Kubeconfig(s.server(), pair)
}

func (s *supervisor) pki(file string) string { return s.path("pki", file) }

// startStore starts etcd and the API server and waits until the latter is ready.
func (s *supervisor) startStore(ctx context.Context) error {
	err := s.start(ctx, "etcd", s.program("etcd", "--name", "test", "--data-dir", s.path("etcd"), "--log-level", "warn",
		"--listen-client-urls", etcdClients, "--advertise-client-urls", etcdClients,
		"--listen-peer-urls", etcdPeers, "--initial-advertise-peer-urls", etcdPeers, "--initial-cluster", "test="+etcdPeers,
		"--unsafe-no-fsync")) // its data end with the cluster
	if err != nil {
		return err
	}
	return s.startAPIServer(ctx)
}

const apiServer = "kube-apiserver"

func (s *supervisor) startAPIServer(ctx context.Context) error {
	err := s.start(ctx, apiServer, s.program(apiServer,
		"--advertise-address", s.gateway().String(), "--bind-address", s.gateway().String(), fmt.Sprint("--secure-port=", apiPort),
		"--etcd-servers", etcdClients, "--service-cluster-ip-range", Services.String(), "--allow-privileged",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--cert-dir", s.path("pki"), "--client-ca-file", s.pki("ca.crt"),
		"--tls-cert-file", s.pki("apiserver.crt"), "--tls-private-key-file", s.pki("apiserver.key"),
		"--kubelet-client-certificate", s.pki("kubelet-client.crt"), "--kubelet-client-key", s.pki("kubelet-client.key"),
		"--kubelet-certificate-authority", s.pki("ca.crt"), "--kubelet-preferred-address-types", "InternalIP",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", s.pki("service-accounts.key"), "--service-account-signing-key-file", s.pki("service-accounts.key"),
		"--requestheader-client-ca-file", s.pki("ca.crt"), "--requestheader-allowed-names", "front-proxy",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--proxy-client-cert-file", s.pki("front-proxy.crt"), "--proxy-client-key-file", s.pki("front-proxy.key"),
		// This machine has no kube-proxy: webhooks are called at their endpoints.
		"--enable-aggregator-routing"))
	if err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	return poll(ctx, "the API server is not ready", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (s *supervisor) stopAPIServer(ctx context.Context) error {
	s.drop(ctx, apiServer, stopTimeout)
	return nil
}

// startControllers starts what makes a cluster of an API server.
func (s *supervisor) startControllers(ctx context.Context) error {
	kcm, scheduler := s.pki("controller-manager.kubeconfig"), s.pki("scheduler.kubeconfig")
	const none = "--secure-port=0"
	if err := os.WriteFile(s.path("pki", "Corefile"), []byte(corefile(s.gateway(), s.path(kubeconfigFile))), 0o600); err != nil {
		return err
	}
	var g errgroup.Group
	for _, spec := range []process.Spec{
		s.program("kube-controller-manager", "--kubeconfig", kcm, "--use-service-account-credentials", "--leader-elect=false", none,
			"--node-monitor-grace-period", nodeGrace.String(), "--service-account-private-key-file", s.pki("service-accounts.key"), "--root-ca-file", s.pki("ca.crt"),
			"--cluster-signing-cert-file", s.pki("ca.crt"), "--cluster-signing-key-file", s.pki("ca.key")),
		s.program("kube-scheduler", "--kubeconfig", scheduler, "--leader-elect=false", none),
		s.program("coredns", "-conf", s.path("pki", "Corefile")),
		s.program("registry", "-listen", s.registry(), "-dir", s.path("registry")),
	} {
		g.Go(func() error { return s.start(ctx, "controllers", spec) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	// Pods cannot be made before.
	return poll(ctx, "the controllers make no service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (s *supervisor) program(name string, args ...string) process.Spec {
	return process.Spec{Name: name, Path: filepath.Join(s.c.BinDir, name), Args: args}
}

func (s *supervisor) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.path(kubeconfigFile))
	if err != nil {
		return nil, err
	}
	config.Timeout, config.QPS = requestTimeout, -1
	return kubernetes.NewForConfig(config)
}

// errHopeless ends a poll.
var errHopeless = errors.New("no use in waiting")

// poll asks until there is no error.
func poll(ctx context.Context, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, errHopeless) {
			return fmt.Errorf("%s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}
