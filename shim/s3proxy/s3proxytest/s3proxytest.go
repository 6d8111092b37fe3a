// Package s3proxytest is a node with S3 for one sandbox, before a real store: for tests of what programs find there.
package s3proxytest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/endpoints"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/nodeapi/programtest"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/site"
	"github.com/headstart-mesh/headstart/shim/s3proxy"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/stores"
	"github.com/headstart-mesh/headstart/shim/writeback"
)

// The store's own keys.
const (
	KeyID  = "AKIAIOSFODNN7EXAMPLE"
	Secret = "wJalrXUtnFEMI-a-secret"
)

// The store's buckets.
const (
	Bucket   = "data"
	ReadOnly = "archive"  // which functions only read
	Hidden   = "operator" // which the operator does not list
)

const (
	patience = 30 * time.Second
	room     = 1 << 30
)

// Store is a real S3 server.
type Store struct {
	t testing.TB
	// Dir has a directory for each bucket.
	Dir     string
	address string
	log     bytes.Buffer
	running *exec.Cmd
	// in front of it, for nodes:
	front net.Listener

	mu       sync.Mutex
	requests []string
	// Before sees each request of a node first; true: it has answered.
	Before atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

// StartStore starts the store.
func StartStore(t testing.TB) *Store {
	t.Helper()
	s := &Store{t: t, Dir: t.TempDir(), address: porttest.Address(t)}
	for _, bucket := range []string{Bucket, ReadOnly, Hidden} {
		if err := os.Mkdir(filepath.Join(s.Dir, bucket), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.running = exec.Command(programtest.Path(t, "versitygw"), "--port", s.address, "posix", s.Dir)
	s.running.Env = []string{"ROOT_ACCESS_KEY=" + KeyID, "ROOT_SECRET_KEY=" + Secret}
	s.running.Stdout, s.running.Stderr = &s.log, &s.log
	if err := s.running.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for look := time.NewTicker(20 * time.Millisecond); ; {
		if c, err := net.Dial("tcp", s.address); err == nil {
			_ = c.Close() // it was only to see
			break
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatal("versitygw does not listen")
		}
	}
	s.serveFront()
	return s
}

func (s *Store) stop() {
	_ = s.running.Process.Kill()
	_ = s.running.Wait() // it was killed
	if s.t.Failed() {
		s.t.Logf("versitygw: %s", s.log.String())
	}
}

// serveFront notes what nodes ask for on its way to the server.
func (s *Store) serveFront() {
	var err error
	if s.front, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		s.t.Fatal(err)
	}
	to := &httputil.ReverseProxy{Transport: &http.Transport{DisableCompression: true},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = "http", s.address
			p.Out.Host = p.In.Host // which is signed
		}}
	server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
		s.mu.Unlock()
		if before := s.Before.Load(); before != nil && (*before)(w, r) {
			return
		}
		to.ServeHTTP(w, r)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(s.front) }()
	s.t.Cleanup(func() {
		_ = server.Close() // nobody is served any more
		<-served
		to.Transport.(*http.Transport).CloseIdleConnections()
	})
}

// URL is the store's endpoint, past what notes the requests of nodes.
func (s *Store) URL() string { return "http://" + s.address }

// Asked returns what nodes have asked the store for, and forgets it: methods and paths.
func (s *Store) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = nil
	return all
}

// Env is the environment of a program that asks the store itself.
func (s *Store) Env() []string {
	return []string{"AWS_ENDPOINT_URL_S3=" + s.URL(), "AWS_ACCESS_KEY_ID=" + KeyID, "AWS_SECRET_ACCESS_KEY=" + Secret,
		"AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1"}
}

// Node is a node with one sandbox. Its fields are for reading.
type Node struct {
	t      testing.TB
	Name   string
	Cache  *objects.Cache
	Server *s3proxy.Server
	socket string
	pods   *sandboxes.Kubelet
	events chan *nodeapi.Event

	mu        sync.Mutex
	ways      map[string]int
	functions map[string]string // by the sandbox
}

// Ended implements objects.Metrics.
func (n *Node) Ended(o objects.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ways[o.Way]++
}

// Evicted implements objects.Metrics.
func (n *Node) Evicted(string) {}

// Ways are the ways by which inputs came to their objects, since it was asked last.
func (n *Node) Ways() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.ways
	n.ways = map[string]int{}
	return all
}

// Options say what a node has.
type Options struct {
	// Namespace is the sandbox's; empty: default.
	Namespace string
	// Fresh is what the operator says of Bucket; empty: nothing.
	Fresh string
	// Write is how functions write into Bucket; empty: through.
	Write string
	// Patience is how long a request waits for what another node has; 0: for long.
	Patience time.Duration
	// Journal is the directory for what is written behind; empty: the node's own.
	Journal string
	// Site has the node know others; nil: it is alone. Stranger: it may ask them for nothing.
	Site     *Site
	Stranger bool
}

// StartNode starts a node before a store.
func StartNode(t testing.TB, s *Store, o Options) *Node {
	t.Helper()
	log := slog.New(slog.NewTextHandler(&output{t: t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir, err := os.MkdirTemp("", "hs") // unix sockets need a short path
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	secrets := filepath.Join(dir, "secrets")
	must(t, os.Mkdir(secrets, 0o700))
	must(t, os.WriteFile(filepath.Join(secrets, "store"), []byte("access_key_id = "+KeyID+"\nsecret_access_key = "+Secret+"\n"), 0o600))
	fresh := ""
	if o.Fresh != "" {
		fresh = fmt.Sprintf("\n  fresh: {%s: %s}", Bucket, o.Fresh)
	}
	list := fmt.Sprintf("- name: default%s\n  s3:\n    endpoint: http://%s\n    pathStyle: true\n    buckets: [%s, %s]\n"+
		"    write: {%s: %s}\n    credentialsSecret: store\n", fresh, s.front.Addr(), Bucket, ReadOnly, Bucket, cmp.Or(o.Write, "through"))
	must(t, os.WriteFile(filepath.Join(dir, "stores.yaml"), []byte(list), 0o600))
	allowed, err := stores.Open(secrets, filepath.Join(dir, "stores.yaml"))
	must(t, err)
	held, err := buffer.Open(filepath.Join(dir, "buffer"), room)
	must(t, err)
	n := &Node{t: t, socket: filepath.Join(dir, "endpoints.sock"), events: make(chan *nodeapi.Event, 16), ways: map[string]int{}, functions: map[string]string{}}
	n.Name = filepath.Base(dir)
	written := writeback.Config{Dir: cmp.Or(o.Journal, filepath.Join(dir, "writes")), Node: n.Name,
		Bytes: room, Writes: 1000, Patience: cmp.Or(o.Patience, patience), Log: log,
		Store: func(name string) (writeback.Store, string, error) { return allowed.API(name) }}
	cached := objects.Config{Sources: allowed.Source, Rule: allowed.Rule, Buffer: held, Age: time.Hour, Metrics: n}
	own := &site.Own{}
	if o.Site != nil {
		near := o.Site.join(t, n.Name, own, o.Stranger, log)
		written.Holders, cached.Neighbours = near, near
	}
	writes := writeback.Open(written)
	allowed.Pend(writes, 0)
	n.Cache = objects.New(cached)
	own.Cache, own.Writes = n.Cache, writes
	n.Server = s3proxy.New(s3proxy.Config{
		Await: allowed.Await,
		Store: func(function, name string) (s3proxy.Store, error) { return allowed.S3(function, name) },
		Rule:  allowed.Rule, Objects: n.Cache, Writes: writes,
		Function:    func(sandbox string) string { n.mu.Lock(); defer n.mu.Unlock(); return n.functions[sandbox] },
		Adopt:       func(sandbox string) error { return n.pods.Adopt(sandbox) },
		Traceparent: func(string) string { return "" },
		Event:       func(e *nodeapi.Event) { n.events <- e },
		Metrics:     s3proxy.NewMetrics(prometheus.NewRegistry()), Log: log})
	n.pods, err = sandboxes.OpenKubelet(sandboxes.Config{Dir: filepath.Join(dir, "instances"),
		Providers: []sandboxes.Provider{n.Server}, Log: log}, nil)
	must(t, err)
	l, err := net.Listen("unix", n.socket)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- endpoints.Serve(ctx, n.Server, log)(l) }()
	t.Cleanup(func() {
		stop()
		must(t, <-served)
		n.Server.Close()
		n.pods.Close()
		end, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must(t, n.Cache.Close(end))
		must(t, held.Close())
		writes.Close()
		allowed.Close()
	})
	return n
}

// Pod makes a sandbox of the store on a network namespace, empty for the caller's, and returns its programs' environment.
func (n *Node) Pod(namespace, name, network string) []string {
	n.t.Helper()
	pod := &nodeapi.Pod{Namespace: namespace, Name: name, Uid: "uid-" + name, Container: "main"}
	described, err := n.pods.Describe(n.t.Context(), &nodeapi.DescribeRequest{Sandbox: "container-" + name, Pod: pod, S3: "default"})
	must(n.t, err)
	if len(described.GetEndpoints()) != 1 {
		n.t.Fatalf("described as %v", described)
	}
	l, err := endpoints.Listen(n.t.Context(), network)
	must(n.t, err)
	outputs, err := os.Open(n.t.TempDir())
	must(n.t, err)
	ctx, stop := context.WithCancel(context.Background())
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		endpoints.Keep(ctx, n.socket, endpoints.Offer{Sandbox: pod.SandboxID(), Name: "s3", Output: outputs}, l)
	}()
	n.t.Cleanup(func() { stop(); <-kept; must(n.t, errors.Join(l.Close(), outputs.Close())) })
	env := []string{"HEADSTART_OUTPUT_DIR=" + outputs.Name()}
	for name, value := range described.GetEndpoints()[0].GetEnv() {
		env = append(env, name+"="+strings.ReplaceAll(value, "{address}", l.Addr().String()))
	}
	return env
}

// Instance makes a sandbox of a function, and returns its programs' environment.
func (n *Node) Instance(function, name string) []string {
	n.t.Helper()
	namespace, _, _ := strings.Cut(function, "/")
	n.mu.Lock()
	n.functions[ID(namespace, name)] = function
	n.mu.Unlock()
	return n.Pod(namespace, name, "")
}

// ID is that of a pod's sandbox.
func ID(namespace, name string) string {
	return (&nodeapi.Pod{Namespace: namespace, Name: name, Uid: "uid-" + name}).SandboxID()
}

// Get returns a variable of an environment.
func Get(env []string, name string) string {
	for _, v := range env {
		if value, is := strings.CutPrefix(v, name+"="); is {
			return value
		}
	}
	return ""
}

// Address is host and port in an environment.
func Address(t testing.TB, env []string) string {
	t.Helper()
	u, err := url.Parse(Get(env, "AWS_ENDPOINT_URL_S3"))
	must(t, err)
	return u.Host
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// output is the test's.
type output struct{ t testing.TB }

func (o *output) Write(p []byte) (int, error) {
	o.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
