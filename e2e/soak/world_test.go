//go:build integration

package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headstart-mesh/headstart/control-plane/embedded/process"
	"github.com/headstart-mesh/headstart/e2e/soak/plan"
	"github.com/headstart-mesh/headstart/e2e/soak/proxy"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
)

// What the nodes' buffers take, in bytes: less than plan.Flood together.
const (
	memoryBytes = 8 << 20
	diskBytes   = 32 << 20
	redisBytes  = 8 << 20
	// underWay is how many bytes of inputs are under way at a time, so that the buffers are only full when they
	// are to be: what one namespace may have of a node's disk, four fifths, without the largest input, whose room
	// may be free a second after its request has ended.
	underWay = diskBytes*4/5 - 6<<20
	// bodyStep is how many bytes a body of unknown length takes at a time.
	bodyStep = 1 << 20
)

// world is two nodes, what their functions read from, and what tells them what to do.
type world struct {
	t       *testing.T
	plan    plan.Plan
	dir     string // on disk
	program string
	group   *process.Group
	log     *log

	s3      *testbed.S3
	objects string // where the S3 server has them
	redis   *redis.Client
	streams *streams
	web     *web
	ways    map[plan.Input]*proxy.Server
	shared  [plan.Shared]shared

	cp          *controlPlane
	hints       *http.Client // to the edge's filter's socket
	edge, cloud *node

	mu   sync.Mutex
	runs map[string]*run // by the request's id

	dying                      sync.Mutex // one node at a time
	deaths, restarts, flooding spell
}

// node is one node's daemon.
type node struct {
	// process is its name in the group.
	process                         string
	name, state, run, peer, metrics string
	function                        *function
}

func (n *node) socket(name string) string { return filepath.Join(n.run, name) }

// open starts everything; it is gone with the test.
func open(t *testing.T, p plan.Plan) *world {
	t.Helper()
	w := &world{t: t, plan: p, dir: t.TempDir(), program: *program, log: &log{}, runs: map[string]*run{}, ways: map[plan.Input]*proxy.Server{}}
	if w.program == "" {
		bin := os.Getenv("HEADSTART_BIN")
		if bin == "" {
			t.Fatal("HEADSTART_BIN must name the directory of the built programs; `make test` sets it")
		}
		w.program = filepath.Join(bin, "headstart-node")
	}
	w.group = process.New(func(e process.Exit) {
		if e.Err != nil && e.Stopping {
			t.Errorf("%s did not end in good order: %v", e.Name, e.Err)
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemons' last words:\n%s", w.log.tail())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w.openStores(ctx)
	w.cp = newControlPlane(w)
	w.edge, w.cloud = w.newNode("edge"), w.newNode("cloud")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.edge.socket("gateway/hints.sock"))
	}}
	w.hints = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(func() { w.group.Stop(context.Background()) })
	for _, n := range []*node{w.edge, w.cloud} {
		if err := w.startNode(ctx, n); err != nil {
			t.Fatal(err)
		}
		if err := w.openCaller(ctx, n); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) newNode(name string) *node {
	w.t.Helper()
	// The memory tier wants a tmpfs, and sockets a short path.
	run, err := os.MkdirTemp("/dev/shm", "hs-soak-")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = os.RemoveAll(run) })
	n := &node{name: name, state: filepath.Join(w.dir, name), run: run, peer: porttest.Address(w.t), metrics: porttest.Address(w.t)}
	n.function = newFunction(w, n)
	if err := os.WriteFile(filepath.Join(w.dir, name+".token"), []byte(name), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// startNode starts a node's daemon and waits until the control plane has it.
func (w *world) startNode(ctx context.Context, n *node) error {
	times := w.cp.registrations(n.name)
	w.mu.Lock()
	n.process = fmt.Sprintf("%s-%d", n.name, times)
	w.mu.Unlock()
	return w.group.Start(ctx, process.Spec{Name: n.process, Path: w.program, Log: w.log, StopTimeout: time.Minute,
		Args: []string{"--platform", "kubernetes", "--node-name", n.name, "--state-dir", n.state, "--run-dir", n.run, "--secrets-dir", filepath.Join(w.dir, "secrets"),
			"--control-plane", w.cp.address, "--identity", w.cp.identity, "--ca", w.cp.authority, "--token", filepath.Join(w.dir, n.name+".token"),
			"--peer-listen", n.peer, "--metrics-listen", n.metrics, "--log-level", "info",
			"--buffer-limit", fmt.Sprint(diskBytes), "--buffer-memory", fmt.Sprint(memoryBytes),
			"--buffer-redis", "redis://" + w.redis.Options().Addr + "/1", "--buffer-redis-limit", fmt.Sprint(redisBytes)},
		Ready: func(ctx context.Context) error { return w.cp.registered(ctx, n.name, times+1) }})
}

// kill has the cloud's daemon die, and waits until another one is there.
func (w *world) kill() error {
	defer w.deaths.begin()()
	if err := w.signal(w.daemon(w.cloud), syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.streams.bereave(ctx, w.cloud.name); err != nil {
		return err
	}
	return w.startNode(ctx, w.cloud)
}

// node is the plan's.
func (w *world) node(n plan.Node) *node {
	if n == plan.Cloud {
		return w.cloud
	}
	return w.edge
}

// daemon is the name of a node's process.
func (w *world) daemon(n *node) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return n.process
}

// restartRedis has Redis die, with all that it has, and the one with the streams, which keeps
// what it has, and waits until both are back.
func (w *world) restartRedis() error {
	defer w.restarts.begin()()
	for name, client := range map[string]*redis.Client{"redis": w.redis, queuesProcess: w.streams.client} {
		if err := w.signal(name, syscall.SIGKILL); err != nil {
			return err
		}
		if err := testbed.Poll(context.Background(), patience, func(ctx context.Context) error { return client.Ping(ctx).Err() }); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) signal(name string, s syscall.Signal) error {
	pid := w.pid(name)
	if pid == 0 {
		return fmt.Errorf("%s does not run", name)
	}
	if err := syscall.Kill(pid, s); err != nil {
		return err
	}
	return testbed.Poll(context.Background(), patience, func(context.Context) error {
		if w.pid(name) == pid {
			return fmt.Errorf("%s is still there", name)
		}
		return nil
	})
}

func (w *world) pid(name string) int {
	all := w.group.Status()
	i := slices.IndexFunc(all, func(s process.Status) bool { return s.Name == name })
	return all[i].PID
}

// caseOf finds the case that a placement is for: by the request's id, or by the trace if a
// node has made the request. It is nil if there is none.
func (w *world) caseOf(a *nodeapi.Activate) *run {
	if r := w.find(a.GetRequest()); r != nil {
		return r
	}
	trace := strings.Split(a.GetTraceparent(), "-")
	if len(trace) < 2 {
		return nil
	}
	r := w.find(trace[1])
	if r != nil {
		r.called(a.GetRequest())
	}
	return r
}

// run of a request's id, nil if there is none.
func (w *world) find(id string) *run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id]
}

// spell counts stretches of time, to know whether another overlapped with one.
type spell struct {
	mu           sync.Mutex
	began, ended int
}

func (s *spell) begin() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended++
	}
}

// since returns whether there was one at any time from now on.
func (s *spell) since() (overlapped func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.ended
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.began > ended
	}
}

// log keeps the end of what the processes say.
type log struct {
	mu    sync.Mutex
	lines []byte
}

// kept is how much of the log is kept, in bytes.
const kept = 4 << 20

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, p...)
	if len(l.lines) > 2*kept {
		l.lines = slices.Clone(l.lines[len(l.lines)-kept:])
	}
	return len(p), nil
}

// about returns the lines that name one of the words.
func (l *log) about(words ...string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for line := range strings.Lines(string(l.lines)) {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(line, word) }) {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (l *log) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	const last = 4 << 10
	return string(l.lines[max(0, len(l.lines)-last):])
}

var _ io.Writer = (*log)(nil)

// joined is an error of several, in words.
func joined(errs ...error) string {
	if err := errors.Join(errs...); err != nil {
		return err.Error()
	}
	return ""
}
