//go:build integration

// Package local tests what users rely on, end to end, on the embedded platform: real
// Envoy, containerd, shim and S3 server, two nodes, and an emulated link between them.
package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/e2e/functions/witness/report"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

const (
	// answerTimeout bounds every request: nothing may hang.
	answerTimeout = 30 * time.Second
	// settleTimeout bounds what the platform does by itself afterwards.
	settleTimeout = 30 * time.Second
	// The emulated link is slow enough to catch a fetch in the middle.
	linkDelay = 5 * time.Millisecond
	linkRate  = 400_000_000 // bit/s
	// bufferLimit is small, for the test of a full buffer.
	bufferLimit = 48 << 20
)

// binaries is the directory of the built programs.
var binaries = os.Getenv("HEADSTART_BIN")

// bed is what all tests of this package share; each has functions of its own.
var bed *testbed.Bed

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if binaries == "" {
		return 1, errors.New("HEADSTART_BIN must name the directory of the built programs; `make test` sets it")
	}
	work, err := os.MkdirTemp("", "hs-local-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := testbed.Config{Name: "hslocal", BinDir: binaries, WorkDir: filepath.Join(work, "bed"), BufferLimit: bufferLimit,
		Subnet: netip.MustParsePrefix("10.213.0.0/16"), Delay: linkDelay, Rate: linkRate, Progress: func(string) {}}
	if err := servers.plan(c); err != nil {
		return 1, err
	}
	c.Destinations, c.Secrets = servers.list, servers.secrets
	if bed, err = testbed.Open(ctx, c); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, servers.close(), bed.Close()) }()
	if err := errors.Join(servers.start(ctx, c), bed.ImportImage(ctx, testbed.Witness), bed.ImportImage(ctx, testbed.Fire), bed.ImportImage(ctx, testbed.Handoff)); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// withInput are the annotations of a function whose requests name their input.
func withInput(more ...string) map[string]string {
	a := map[string]string{"headstart.dev/input": testbed.Input, "headstart.dev/store": testbed.Store}
	for i := 0; i < len(more); i += 2 {
		a[more[i]] = more[i+1]
	}
	return a
}

// deploy deploys a function of its own for a test and removes it in the end.
func deploy(t *testing.T, f testbed.Function) {
	t.Helper()
	if f.Image == "" {
		f.Image = testbed.Witness
	}
	if err := bed.Apply(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Client().Delete(context.Background(), "default/"+f.Name); err != nil {
			t.Error(err)
		}
	})
}

// put stores an object of n random bytes and returns its digest.
func put(t *testing.T, key string, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	if err := bed.S3.Put(t.Context(), key, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

// answer is what came back.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem filterapi.Problem // if it is one
	report  report.Report     // if it is one
}

// call is one request; body may be nil.
type call struct {
	node, function, path string
	header               map[string]string
	body                 io.Reader
}

func forInput(key string) map[string]string {
	return map[string]string{"x-bucket": testbed.Bucket, "x-key": key}
}

func (c call) do(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	node, path := c.node, c.path
	if node == "" {
		node = testbed.Edge
	}
	if path == "" {
		path = "/"
	}
	r, err := bed.Request(ctx, http.MethodPost, node, c.function, path)
	if err != nil {
		return answer{}, err
	}
	for k, v := range c.header {
		r.Header.Set(k, v)
	}
	if c.body != nil {
		r.Body = io.NopCloser(c.body)
		r.ContentLength = -1
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return a, err
	}
	switch {
	case resp.Header.Get("Content-Type") == "application/problem+json":
		err = json.Unmarshal(a.body, &a.problem)
	case resp.StatusCode == http.StatusOK:
		err = json.Unmarshal(a.body, &a.report)
	}
	return a, err
}

func (c call) must(t *testing.T) answer {
	t.Helper()
	a, err := c.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ok sends the request and fails the test unless the function answers it.
func (c call) ok(t *testing.T) answer {
	t.Helper()
	a := c.must(t)
	if a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	return a
}

// eventually waits until ask returns nil.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	err := testbed.Poll(context.WithoutCancel(t.Context()), settleTimeout, func(context.Context) error { return ask() })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func function(t *testing.T, name string) admin.Function {
	t.Helper()
	s, err := bed.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Functions {
		if f.Name == "default/"+name {
			return f
		}
	}
	t.Fatalf("no function %s in the status", name)
	return admin.Function{}
}

// nothingHalfMade waits until no node has anything of a request or of an instance that
// is not running left.
func nothingHalfMade(t *testing.T) {
	t.Helper()
	eventually(t, "left over", func() error {
		s, err := bed.Client().Status(t.Context())
		if err != nil {
			return err
		}
		running := map[string]bool{}
		for _, f := range s.Functions {
			for _, in := range f.Instances {
				running[in.ID] = true
			}
		}
		for _, node := range []string{testbed.Edge, testbed.Cloud} {
			for _, dir := range []string{"buffer", "instances", "netns"} {
				entries, err := os.ReadDir(filepath.Join(bed.StateDir(node), dir))
				if err != nil {
					return err
				}
				for _, e := range entries {
					if !running[e.Name()] && !strings.HasPrefix(e.Name(), ".") {
						return fmt.Errorf("%s of node %s holds %s", dir, node, e.Name())
					}
				}
			}
		}
		return nil
	})
}
