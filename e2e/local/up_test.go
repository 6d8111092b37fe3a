//go:build integration

package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/functions/ociimage"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// The platform of these tests, beside the testbed's own.
const (
	upName    = "hsup"
	upRunDir  = "/run/" + upName
	upGateway = "http://10.215.0.11:8080"
)

// slowManifest's function starts slowly.
const slowManifest = `
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: slow}
spec:
  template:
    spec:
      containers:
      - image: headstart.local/witness:1
        env:
        - {name: WITNESS_SLOW, value: 1s}
`

const manifest = `
apiVersion: serving.knative.dev/v1
kind: Service
metadata: {name: hello}
spec:
  template:
    spec:
      containers:
      - image: headstart.local/witness:1
`

// headstart runs the CLI as a user would.
func headstart(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("HEADSTART_BIN"), "headstart"), append([]string{"--run-dir", upRunDir}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("headstart %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// up starts `headstart up` and waits until it says that it is up.
func up(t *testing.T, state string) (stop func(...syscall.Signal) string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv("HEADSTART_BIN"), "headstart"), "up", "--run-dir", upRunDir, "--name", upName,
		"--state-dir", state, "--subnet", "10.215.0.0/16", "--stores", upStores(t, state),
		"--destinations", upDestinations(t, state),
		"--secrets-dir", upSecrets(state))
	said := &ready{is: make(chan struct{}), stops: make(chan struct{})}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-said.is:
	case err := <-ended:
		t.Fatalf("up: %v\n%s", err, said.text.String())
	}
	stopped := false
	stop = func(signals ...syscall.Signal) string {
		if stopped {
			return ""
		}
		stopped = true
		for i, s := range signals {
			if i > 0 {
				<-said.stops
			}
			if err := cmd.Process.Signal(s); err != nil {
				t.Error(err)
			}
		}
		if err := <-ended; signals[0] == syscall.SIGINT && err != nil {
			t.Errorf("up ended with %v:\n%s", err, said.text.String())
		}
		return said.text.String()
	}
	t.Cleanup(func() { stop(syscall.SIGINT) })
	return stop
}

// upSecrets is where the platform has the secrets of its store, which is called videos.
func upSecrets(state string) string { return filepath.Join(state, "secrets") }

// upStores writes the operator's list, and makes the directory of the secrets.
func upStores(t *testing.T, state string) (path string) {
	t.Helper()
	path = filepath.Join(state, "stores.yaml")
	list := "- {name: videos, s3: {endpoint: 'http://10.215.0.1:9', region: eu-central-1, buckets: [videos], credentialsSecret: camera}}"
	if err := errors.Join(os.WriteFile(path, []byte(list), 0o600), os.MkdirAll(upSecrets(state), 0o700)); err != nil {
		t.Fatal(err)
	}
	return path
}

// upDestinations writes the operator's list of destinations: one whose secret is missing.
func upDestinations(t *testing.T, state string) (path string) {
	t.Helper()
	path = filepath.Join(state, "destinations.yaml")
	list := "- {name: ledger, postgres: {address: 'db:5432', user: app, credentialsSecret: ledger}}"
	if err := os.WriteFile(path, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ready collects a program's output and notices when it says that the platform is up, or stops.
type ready struct {
	text      bytes.Buffer
	is, stops chan struct{} // closed when it is up, and when it says that it stops
}

func (r *ready) Write(b []byte) (int, error) {
	before := r.text.String()
	r.text.Write(b)
	for words, said := range map[string]chan struct{}{"Headstart is up": r.is, "· stopping": r.stops} {
		if !strings.Contains(before, words) && strings.Contains(r.text.String(), words) {
			close(said)
		}
	}
	return len(b), nil
}

func hello(t *testing.T) *http.Response {
	t.Helper()
	resp, err := callUp(t.Context(), "hello", "/")
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// callUp sends a request to a function, and reads the answer.
func callUp(ctx context.Context, function, path string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, upGateway+path, nil)
	if err != nil {
		return nil, err
	}
	r.Host = function + ".default.headstart.local"
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, errors.Join(err, resp.Body.Close())
}

// underWay waits until the gateway has as many requests.
func underWay(t *testing.T, requests int) {
	t.Helper()
	socket := filepath.Join(upRunDir, "node-1", "envoy.sock")
	envoy := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	eventually(t, fmt.Sprintf("%d requests", requests), func() error {
		resp, err := envoy.Get("http://envoy/stats?filter=^http.gateway.downstream_rq_active$")
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		if said := strings.TrimSpace(string(text)); err == nil && !strings.HasSuffix(said, fmt.Sprintf(": %d", requests)) {
			err = errors.New(said)
		}
		return errors.Join(err, resp.Body.Close())
	})
}

func TestTheWholeLifeOfAPlatform(t *testing.T) {
	state := t.TempDir()
	archive := filepath.Join(state, "witness.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	err = ociimage.Build(f, ociimage.Image{Ref: "headstart.local/witness:1", Entrypoint: []string{"/witness"},
		Files: map[string]ociimage.File{"/witness": {Source: filepath.Join(os.Getenv("HEADSTART_BIN"), "witness"), Mode: 0o755}}})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}

	stop := up(t, state)
	if out := headstart(t, "", "image", "import", archive); !strings.Contains(out, "headstart.local/witness:1") {
		t.Errorf("import said %q", out)
	}
	if out := headstart(t, manifest, "apply", "-f", "-"); out != "default/hello created\n" {
		t.Errorf("apply said %q", out)
	}
	if out := headstart(t, manifest, "apply", "-f", "-"); out != "default/hello unchanged\n" {
		t.Errorf("the second apply said %q", out)
	}
	resp := hello(t)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %s", resp.Status)
	}
	var s admin.Status
	if err := json.Unmarshal([]byte(headstart(t, "", "status", "-o", "json")), &s); err != nil || len(s.Functions) != 1 || len(s.Functions[0].Instances) != 1 {
		t.Fatalf("%v, %+v", err, s)
	}
	instance := s.Functions[0].Instances[0].ID
	if out := headstart(t, "", "status"); !strings.Contains(out, "default/hello") || !strings.Contains(out, upGateway) {
		t.Errorf("status:\n%s", out)
	}
	id := resp.Header.Get("x-headstart-request")
	eventually(t, "trace", func() error {
		c := admin.NewClient(filepath.Join(upRunDir, "admin.sock"))
		tr, err := c.Trace(t.Context(), id)
		if root, ok := tr.Root(); err == nil && (!ok || root.Service != tracing.ServiceGateway) {
			err = errors.New("the gateway's span has not come yet")
		}
		return err
	})
	if out := headstart(t, "", "trace", id); !strings.Contains(out, "gateway") || !strings.Contains(out, "runc.start") {
		t.Errorf("trace:\n%s", out)
	}
	var tr trace.Trace
	if err := json.Unmarshal([]byte(headstart(t, "", "trace", "-o", "json", id)), &tr); err != nil || len(tr.Spans) == 0 {
		t.Errorf("trace: %v, %+v", err, tr)
	}
	// The fault of a secret is seen without a request, and its end, too.
	secret := filepath.Join(upSecrets(state), "camera")
	problems := func(want string) {
		t.Helper()
		eventually(t, "a problem "+want, func() error {
			if out := headstart(t, "", "status"); strings.Contains(out, "cannot use store") != (want != "") || !strings.Contains(out, want) || strings.Contains(out, "hunter2") {
				return errors.New(out)
			}
			return nil
		})
	}
	problems(`cannot use store "videos": opening secret "camera"`)
	if err := os.WriteFile(secret, []byte("access_key_id = a\nhunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	problems(`reading secret "camera": line 2`)
	if err := os.WriteFile(secret, []byte("access_key_id = a\nsecret_access_key = hunter2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	problems("")
	eventually(t, "the problem of a destination", func() error {
		if out := headstart(t, "", "status"); !strings.Contains(out, `cannot connect to destination "ledger": `) {
			return errors.New(out)
		}
		return nil
	})

	// A second platform of its name, in the same place or in another, does not touch it.
	for _, at := range []string{"", "2"} {
		second := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("HEADSTART_BIN"), "headstart"), "up", "--run-dir", upRunDir+at, "--name", upName, "--state-dir", state+at, "--subnet", "10.216.0.0/16")
		if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "--name "+upName+" is running already") || !strings.Contains(string(out), "--run-dir "+upRunDir+")") {
			t.Errorf("a second platform of the same name: %v %s", err, out)
		}
	}
	if resp := hello(t); resp.StatusCode != http.StatusOK {
		t.Errorf("after a second platform was refused: %s", resp.Status)
	}

	// Killed, it leaves things behind; the next start removes them and knows functions
	// and images.
	stop(syscall.SIGKILL)
	stop = up(t, state)
	if resp := hello(t); resp.StatusCode != http.StatusOK || resp.Header.Get("x-headstart-request") == "" {
		t.Errorf("after a kill: %s", resp.Status)
	}
	if found := traces(t, instance); len(found) > 0 {
		t.Errorf("the killed platform's instance has left %v", found)
	}

	// Ended, it answers what is under way, hot and cold, and takes nothing else.
	headstart(t, slowManifest, "apply", "-f", "-")
	answers := make(chan error, 2)
	for function, path := range map[string]string{"hello": "/sleep?ms=2000", "slow": "/"} {
		go func() {
			resp, err := callUp(t.Context(), function, path)
			if err == nil && resp.StatusCode != http.StatusOK {
				err = errors.New(resp.Status)
			}
			if err != nil {
				err = fmt.Errorf("%s at the platform's end: %w", function, err)
			}
			answers <- err
		}()
	}
	underWay(t, 2)
	said := stop(syscall.SIGINT)
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if !strings.Contains(said, "Ctrl-C again") {
		t.Errorf("it said:\n%s", said)
	}
	leavesNothing(t, state)

	// A second Ctrl-C does not wait for requests, and leaves nothing either.
	hurried := up(t, state)
	hello(t)
	cut := make(chan error, 1)
	go func() {
		resp, err := callUp(t.Context(), "hello", "/sleep?ms=60000")
		if err == nil && resp.StatusCode != http.StatusOK { // by a gateway that still runs
			err = errors.New(resp.Status)
		}
		cut <- err
	}()
	underWay(t, 1)
	hurried(syscall.SIGINT, syscall.SIGINT)
	if err := <-cut; err == nil {
		t.Error("a request of a minute was answered")
	}
	leavesNothing(t, state)
}

// leavesNothing looks for what the platform has left.
func leavesNothing(t *testing.T, state string) {
	t.Helper()
	if found := traces(t, upName); len(found) > 0 {
		t.Errorf("the platform has left %v", found)
	}
	if _, err := os.Stat("/run/headstart-" + upName + ".lock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock of the name is still there (%v)", err)
	}
	if found := traces(t, filepath.Join(state, "nodes")); len(found) > 0 {
		t.Errorf("the platform has left %v", found)
	}
	if _, err := os.Stat(upRunDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (%v)", upRunDir, err)
	}
}

// traces looks for the word where processes, mounts, namespaces, devices, firewall
// rules, cgroups and shims' sockets of a platform would bear it.
func traces(t *testing.T, word string) []string {
	t.Helper()
	var found []string
	note := func(kind, what string) {
		if strings.Contains(what, word) {
			found = append(found, fmt.Sprintf("%s: %.200s", kind, strings.TrimSpace(what)))
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if b, err := os.ReadFile(p); err == nil { // else it has ended
			note("process", strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		note("mount", line)
	}
	for _, pattern := range []string{"/run/netns/*", "/sys/class/net/*", "/run/containerd/s/*", "/run/containerd/runc/*/*", "/sys/fs/cgroup/*/headstart/*", "/sys/fs/cgroup/headstart/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			note("file", n)
		}
	}
	rules, err := exec.CommandContext(t.Context(), "iptables-save").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(rules)) {
		note("rule", line)
	}
	return found
}
