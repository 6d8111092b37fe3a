//go:build integration

package main_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headstart-mesh/headstart/shim/functionapi"
	"github.com/headstart-mesh/headstart/shim/ingress"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/porttest"
	"github.com/headstart-mesh/headstart/shim/objects"
	"github.com/headstart-mesh/headstart/shim/objects/buffer"
	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
	"github.com/headstart-mesh/headstart/shim/problem"
	"github.com/headstart-mesh/headstart/shim/readiness"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/staging"
)

const patience = 30 * time.Second

// node is a daemon's ingress, and the sockets of its functions, which run as processes.
type node struct {
	store     *sourcetest.Memory
	instances map[string]sandboxes.Endpoint
	inputs    map[string]*staging.Dir
	outputs   string // a directory for each function
	gateway   *httptest.Server
}

// keep makes a file an object.
func (n *node) keep(_ context.Context, sandbox, file string, to source.Reference, _ http.Header) (string, error) {
	content, err := os.ReadFile(filepath.Join(n.outputs, sandbox, "output", file))
	if err != nil {
		return "", err
	}
	n.store.Put(to, "", content)
	return `"1"`, nil
}

func (n *node) Activate(_ context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
	_, name, _ := strings.Cut(a.GetFunction(), "/")
	return &nodeapi.Bound{Request: a.GetRequest(), Instance: name, Node: "edge"}, nil
}
func (n *node) Hold(string, int32)   {}
func (n *node) Event(*nodeapi.Event) {}

func (n *node) Ready(_ context.Context, id string) (sandboxes.Endpoint, error) {
	if at, ok := n.instances[id]; ok {
		return at, nil
	}
	return sandboxes.Endpoint{}, problem.InstanceGone()
}

func (n *node) Inputs(id string) (*staging.Dir, bool)            { return n.inputs[id], true }
func (n *node) Serving(string) (ids []string, _ <-chan struct{}) { return nil, nil }
func (n *node) IsClosed(string) bool                             { return false }
func (n *node) Replace(string)                                   {}

// newNode runs the two functions first and next by the same program.
func newNode(t *testing.T, program ...string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "hs") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	registry := prometheus.NewRegistry()
	n := &node{
		store: &sourcetest.Memory{}, instances: map[string]sandboxes.Endpoint{}, inputs: map[string]*staging.Dir{}, outputs: dir,
	}
	functions := ingress.NewFunctions()
	sockets := functionapi.New(functionapi.Config{Function: functions.Get, Store: n.keep, Metrics: functionapi.NewMetrics(registry), Log: log})
	var all []*nodeapi.Function
	for _, name := range []string{"first", "next"} {
		n.run(t, filepath.Join(dir, name), name, sockets, program)
		all = append(all, &nodeapi.Function{Name: "default/" + name, HasInput: true, InputTemplate: "s3://videos/{header.x-key}", Store: "default", InputLimit: 1 << 30,
			RequestTimeout: durationpb.New(patience), ReadyTimeout: durationpb.New(patience)})
	}
	functions.Set(all)
	buf, err := buffer.Open(filepath.Join(dir, "buffer"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	fetches := objects.New(objects.Config{Sources: func(string, string) (source.Source, error) { return n.store, nil }, Buffer: buf})
	in := ingress.New(ingress.Config{Node: "edge", Functions: functions, ControlPlane: n, Instances: n, Objects: fetches, Deliveries: sockets, Metrics: ingress.NewMetrics(registry), Log: log})
	n.gateway = httptest.NewServer(in.Gateway())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); sockets.Run(ctx, in.Gateway()) }()
	t.Cleanup(func() {
		n.gateway.Close()
		cancel()
		<-ended
		in.Close()
		if err := fetches.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if used := buf.Used(); used != 0 {
			t.Errorf("%d bytes are left in the buffer", used)
		}
		if err := buf.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) run(t *testing.T, dir, name string, sockets *functionapi.Server, program []string) {
	t.Helper()
	for _, d := range []string{"input", "socket", "output"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	socket, err := os.OpenRoot(filepath.Join(dir, "socket"))
	if err == nil {
		err = sockets.Open(name, "default", socket)
	}
	if err == nil {
		var input *os.Root
		input, err = os.OpenRoot(filepath.Join(dir, "input"))
		n.inputs[name] = &staging.Dir{Input: input}
	}
	if err != nil {
		t.Fatal(err)
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), porttest.Free(t))
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", at.Port()),
		"HEADSTART_SOCKET="+filepath.Join(dir, "socket", "headstart.sock"),
		"HEADSTART_INPUT_DIR="+filepath.Join(dir, "input"),
		"HEADSTART_OUTPUT_DIR="+filepath.Join(dir, "output"))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := readiness.Await(ctx, at, ""); err != nil {
		t.Fatal(err)
	}
	n.instances[name] = sandboxes.Endpoint{Address: at}
}

// request asks the function first, as a gateway does.
func (n *node) request(t *testing.T, path string, body io.Reader, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.gateway.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-headstart-function", "default/first")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// The examples of the page do what it says, against the daemon's real ingress and sockets.
func TestTheExamples(t *testing.T) {
	for language, program := range map[string][]string{
		"Go":     {filepath.Join(os.Getenv("HEADSTART_BIN"), "handoff")},
		"Python": {"python3", "handoff.py"},
	} {
		t.Run(language, func(t *testing.T) {
			n := newNode(t, program...)
			content := make([]byte, 3_000_000)
			_, _ = rand.Read(content) // never fails
			want := fmt.Sprintf("%x", sha256.Sum256(content))
			ref := source.Reference{Scheme: "s3", Bucket: "videos", Key: "one"}
			n.store.Put(ref, "video/x-motion-jpeg", content)
			for path, headers := range map[string][]string{
				"/body":              {"x-headstart-input", ref.String()},
				"/file":              {"x-headstart-input", ref.String()},
				"/read":              {"x-headstart-input", ref.String()},
				"/stream?to=next":    {"x-headstart-input", ref.String()},
				"/reference?to=next": {"x-object", ref.String()},
			} {
				var body io.Reader
				if path == "/reference?to=next" {
					body = strings.NewReader("parameters")
				}
				if status, got := n.request(t, path, body, headers...); status != http.StatusOK || got != want {
					t.Errorf("%s: %d %q, want %q", path, status, got, want)
				}
			}
			made := "s3://videos/made of it.mp4"
			if status, got := n.request(t, "/output", bytes.NewReader(content), "x-object", made); status != http.StatusNoContent {
				t.Errorf("/output: %d %q", status, got)
			}
			if status, got := n.request(t, "/reference?to=next", nil, "x-object", made); status != http.StatusOK || got != want {
				t.Errorf("what was an output: %d %q, want %q", status, got, want)
			}
			status, got := n.request(t, "/reference?to=next", strings.NewReader("parameters"), "x-object", "s3://videos/none")
			var p problem.Problem
			if err := json.Unmarshal([]byte(got), &p); status != http.StatusNotFound || p.Title != "InputNotFound" {
				t.Errorf("%d %q, %v", status, got, err)
			}
		})
	}
}
