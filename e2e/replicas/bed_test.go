//go:build integration

// Package replicas tests what one control plane of several is for: the others go on. Two real
// control planes follow what they take for a Kubernetes cluster, two real daemons have a stream
// with each, and two real gateways have their endpoints from the daemons.
package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
)

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// hot is the function that always has instances; its idle window is so short that it would lose
// them if its requests were not heard of. The cold ones get theirs by the requests, and there
// are so many that each request is of another one.
const (
	hot        = "hot"
	hotPods    = 2
	idleWindow = 4 * time.Second
	coldOnes   = 400
)

func cold(i int) string { return fmt.Sprintf("cold-%d", i%coldOnes) }

// bed is two of everything.
type bed struct {
	t *testing.T
	// whole is the test that programs outlive its parts in.
	whole             *testing.T
	dir               string
	cluster           *cluster
	kubeconfig        string
	kubelet           *kubelet
	controlPlanes     []*controlPlane
	identity, service *link // to any control plane
	nodes             []*node
	// asked is how many functions have had a request.
	asked *atomic.Int64
	// older are the names of the programs that are of the neighbouring version.
	older []string
}

// neighbour is the environment variable that names the directory of the neighbouring version's
// programs; `make test` sets it.
const neighbour = "HEADSTART_NEIGHBOUR"

// path is where a program of the product is.
func (b *bed) path(name string) string {
	b.t.Helper()
	if !slices.Contains(b.older, name) {
		return programtest.Path(b.t, name)
	}
	path := filepath.Join(os.Getenv(neighbour), name)
	if _, err := os.Stat(path); err != nil {
		b.t.Fatalf("%s must name the directory that e2e/replicas/neighbour.sh prints: %v", neighbour, err)
	}
	return path
}

// controlPlane is one of several, and the way to it.
type controlPlane struct {
	*program
	name, listen, identity, admin string
	link                          *link
}

// node is a daemon and the gateway that it serves.
type node struct {
	name, dir string
	ip        string // the pods' of its daemons
	daemon    *program
	gateway   *program
	url       string
	metrics   string // address of the current daemon's metrics
	port      uint16
}

// newBed runs all of it; older are the programs that are of the neighbouring version.
func newBed(t *testing.T, older ...string) *bed {
	t.Helper()
	b := newControlPlanes(t, older...)
	for i, name := range b.kubelet.nodes {
		n := &node{name: name, dir: filepath.Join(b.dir, name), ip: fmt.Sprintf("127.21.0.%d", i+1), port: porttest.Free(t)}
		n.url = fmt.Sprintf("http://127.0.0.1:%d/", n.port)
		b.nodes = append(b.nodes, n)
		b.cluster.join(name, n.ip)
	}
	b.eventually("the control planes' authority", b.authority)
	for _, n := range b.nodes {
		b.startDaemon(n)
	}
	b.connected(2)
	for _, n := range b.nodes {
		b.startGateway(n)
	}
	return b
}

// newControlPlanes runs them without nodes.
func newControlPlanes(t *testing.T, older ...string) *bed {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := newCluster(t)
	b := &bed{
		t: t, whole: t, older: older, asked: &atomic.Int64{}, dir: dir, cluster: c, kubeconfig: c.kubeconfig(),
		kubelet: newKubelet(c, "edge", "cloud"),
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.logs()
		}
	})
	b.kubelet.deploy(hot, hotPods, idleWindow)
	for i := range coldOnes {
		b.kubelet.deploy(cold(i), 0, idleWindow)
	}
	for _, name := range []string{"first", "second"} {
		b.controlPlanes = append(b.controlPlanes, &controlPlane{name: name, link: newLink(t)})
	}
	b.identity, b.service = newLink(t), newLink(t)
	for _, p := range b.controlPlanes {
		b.startControlPlane(p)
	}
	return b
}

func (b *bed) address() string { return fmt.Sprintf("127.0.0.1:%d", porttest.Free(b.t)) }

// program is a process of the product.
type program struct {
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended
}

// start starts one.
func (b *bed) start(what, name string, args ...string) *program {
	b.t.Helper()
	return b.run(what, exec.Command(b.path(name), args...), &syscall.SysProcAttr{})
}

// run runs a command, with its log in a file that a failed test shows.
func (b *bed) run(what string, cmd *exec.Cmd, how *syscall.SysProcAttr) *program {
	b.t.Helper()
	file, err := os.OpenFile(filepath.Join(b.dir, what+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	p := &program{cmd: cmd, over: make(chan struct{})}
	how.Pdeathsig = syscall.SIGKILL
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = file, file, how
	if err := p.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	go func() {
		defer close(p.over)
		_ = p.cmd.Wait() // tests end it
		file.Close()
	}()
	b.whole.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

// signal sends a program a signal that does not end it.
func (b *bed) signal(p *program, s syscall.Signal) {
	b.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		b.t.Error(err)
	}
}

// end has a program end by a signal, and waits for it.
func (p *program) end(how syscall.Signal) {
	_ = p.cmd.Process.Signal(how) // it may have ended
	<-p.over
}

// logs shows what a failed test's programs said last.
func (b *bed) logs() {
	const shown = 6000
	files, _ := filepath.Glob(filepath.Join(b.dir, "*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		b.t.Logf("%s:\n%s", filepath.Base(file), text[max(0, len(text)-shown):])
	}
}

// startControlPlane starts one, where it was or for the first time. What it listens on is new:
// somebody else may have taken the ports of before. The ways to it lead there.
func (b *bed) startControlPlane(p *controlPlane) {
	b.t.Helper()
	p.listen, p.identity, p.admin = b.address(), b.address(), b.address()
	p.program = b.start(p.name, "headstart-controlplane", "--platform=kubernetes", "--kubeconfig="+b.kubeconfig, "--namespace="+system, "--name="+p.name,
		"--listen="+p.listen, "--identity-listen="+p.identity, "--admin-listen="+p.admin, "--otlp-listen="+b.address(), "--metrics-listen=")
	var all, identities []string
	for _, each := range b.controlPlanes {
		if each.program != nil {
			all, identities = append(all, each.listen), append(identities, each.identity)
		}
	}
	p.link.leadTo(p.listen)
	b.service.leadTo(all...)
	b.identity.leadTo(identities...)
}

// authority gives the daemons the control planes' certificate, if it is there.
func (b *bed) authority() error {
	m := get[*corev1.ConfigMap](b.cluster, "configmaps", system, "headstart-ca")
	if m == nil || m.Data["ca.crt"] == "" {
		return errors.New("it is not there")
	}
	return os.WriteFile(filepath.Join(b.dir, "ca.crt"), []byte(m.Data["ca.crt"]), 0o600)
}

// startDaemon starts a node's daemon, and returns when it is ready, as its pod's probe sees it.
func (b *bed) startDaemon(n *node) {
	b.t.Helper()
	token := filepath.Join(b.dir, "token-"+n.name)
	if err := os.WriteFile(token, []byte("token-"+n.name), 0o600); err != nil {
		b.t.Fatal(err)
	}
	var names []string
	for _, p := range b.controlPlanes {
		names = append(names, p.link.address)
	}
	n.metrics = b.address()
	n.daemon = b.start("daemon-"+n.name, "headstart-node", "--platform=kubernetes", "--node-name="+n.name, "--control-plane="+strings.Join(names, ","), "--control-plane-any="+b.service.address, "--identity="+b.identity.address,
		"--token="+token, "--ca="+filepath.Join(b.dir, "ca.crt"), "--run-dir="+n.dir, "--state-dir="+n.dir+"-state", "--secrets-dir="+filepath.Join(b.dir, "none"),
		"--peer-listen="+fmt.Sprintf("%s:%d", n.ip, porttest.Free(b.t)), "--metrics-listen="+n.metrics, "--buffer-limit=67108864")
	b.eventually("the daemon of "+n.name, func() error {
		answer, err := client.Get("http://" + n.metrics + "/metrics")
		if err == nil {
			answer.Body.Close()
		}
		return err
	})
}

// mounted runs what follows where its first argument is at its second, which it makes: in a mount
// namespace of its own, where nobody else sees that.
const mounted = `mount -t tmpfs none /run && mkdir -p "$2" && mount --bind "$1" "$2" && shift 2 && exec "$@"`

// startGateway starts an Envoy with nothing but what a mesh and its node's daemon give it. As in
// its pod, the daemon's directory is where it is on every node.
func (b *bed) startGateway(n *node) {
	b.t.Helper()
	config, err := json.Marshal(bootstrap(n))
	if err != nil {
		b.t.Fatal(err)
	}
	file := filepath.Join(b.dir, "gateway-"+n.name+".json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		b.t.Fatal(err)
	}
	n.gateway = b.run("gateway-"+n.name, exec.Command("sh", "-c", mounted, "sh", filepath.Join(n.dir, "gateway"), gatewayDir,
		programtest.Path(b.t, "envoy"), "-c", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"), &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS})
	b.eventually("gateway "+n.name, func() error {
		_, err := ask(b.t.Context(), n, hot)
		return err
	})
}

// status asks a control plane for its own.
func (b *bed) status(p *controlPlane) (admin.Status, error) {
	c := admin.NewClientOver(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", p.admin)
	})
	defer c.Close()
	return c.Status(b.t.Context())
}

// connected waits until this many control planes have all nodes, and one of them is in charge.
func (b *bed) connected(controlPlanes int) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%d control planes with all nodes", controlPlanes), func() error {
		var said []string
		with, inCharge := 0, 0
		for _, p := range b.controlPlanes {
			s, err := b.status(p)
			said = append(said, fmt.Sprintf("%s: %d nodes, in charge %v, %v", p.name, len(s.Nodes), s.InCharge, err))
			if err == nil && len(s.Nodes) == len(b.nodes) {
				with++
			}
			if err == nil && s.InCharge {
				inCharge++
			}
		}
		if with != controlPlanes || inCharge != 1 {
			return errors.New(strings.Join(said, "; "))
		}
		return nil
	})
}

// roles are the control plane that is in charge, and the other one.
func (b *bed) roles() (leader, other *controlPlane) {
	b.t.Helper()
	b.connected(2)
	for _, p := range b.controlPlanes {
		if s, err := b.status(p); err == nil && s.InCharge {
			leader = p
		} else {
			other = p
		}
	}
	return leader, other
}

func (b *bed) eventually(what string, is func() error) {
	b.t.Helper()
	if err := testbed.Poll(b.t.Context(), patience, func(context.Context) error { return is() }); err != nil {
		b.t.Fatalf("waited %v in vain for %s: %v", patience, what, err)
	}
}

// client keeps connections open, as busy clients do.
var client = &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// ask sends a request to a node's gateway, which has to be answered by the function.
func ask(ctx context.Context, n *node, function string) (took time.Duration, err error) {
	began := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	r.Host = function + ".test"
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK || text.String() != function {
		return 0, fmt.Errorf("%s at %s: %s: %.300s", function, n.name, answer.Status, text.String())
	}
	return time.Since(began), nil
}

// load is requests at a constant rate at all gateways.
type load struct {
	all  sync.WaitGroup
	stop context.CancelFunc

	mu        sync.Mutex
	hot, cold int
	failed    []string
	hotMost   time.Duration
	coldMost  time.Duration
	failures  int
}

const (
	hotEvery  = 20 * time.Millisecond
	coldEvery = 600 * time.Millisecond
	// failuresShown is enough to see what goes wrong.
	failuresShown = 8
)

func (b *bed) load() *load {
	ctx, cancel := context.WithCancel(b.t.Context())
	l := &load{stop: cancel}
	for _, kind := range []struct {
		every time.Duration
		name  func(i int) string
		count *int
		most  *time.Duration
	}{{hotEvery, func(int) string { return hot }, &l.hot, &l.hotMost}, {coldEvery, func(int) string { return b.nextCold() }, &l.cold, &l.coldMost}} {
		l.all.Go(func() {
			tick := time.NewTicker(kind.every)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				l.all.Go(func() {
					// Those under way when the load ends are waited for.
					took, err := ask(context.WithoutCancel(ctx), b.nodes[i%len(b.nodes)], kind.name(i))
					l.mu.Lock()
					defer l.mu.Unlock()
					*kind.count++
					*kind.most = max(*kind.most, took)
					if err == nil {
						return
					}
					if l.failures++; len(l.failed) < failuresShown {
						l.failed = append(l.failed, err.Error())
					}
				})
			}
		})
	}
	return l
}

// nextCold is a function that nobody has asked for yet.
func (b *bed) nextCold() string { return cold(int(b.asked.Add(1))) }

// end ends the load. No request may have failed.
func (b *bed) end(l *load) {
	b.t.Helper()
	l.stop()
	l.all.Wait()
	b.t.Logf("%d hot requests (the longest %v), %d cold ones (%v), %d failed", l.hot, l.hotMost.Round(time.Millisecond), l.cold, l.coldMost.Round(time.Millisecond), l.failures)
	for _, f := range l.failed {
		b.t.Error(f)
	}
	if l.hot == 0 || l.cold == 0 {
		b.t.Error("there was no load")
	}
}
