//go:build integration

package local

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// withBody are the annotations of a function whose input is the request's body.
var withBody = map[string]string{"headstart.dev/input": "body"}

// upload is a body that a client lets go as the test wants it.
type upload struct {
	content []byte
	*io.PipeReader
	to *io.PipeWriter
}

func newUpload(t *testing.T, size int) *upload {
	t.Helper()
	u := &upload{content: make([]byte, size)}
	if _, err := rand.Read(u.content); err != nil {
		t.Fatal(err)
	}
	u.PipeReader, u.to = io.Pipe()
	return u
}

func (u *upload) digest() string { return fmt.Sprintf("%x", sha256.Sum256(u.content)) }

// buffered is how many bytes lie in the node's buffer.
func buffered(t *testing.T, node string) (sum int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(bed.StateDir(node), "buffer"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // it is there still
			sum += info.Size()
		}
	}
	return sum
}

// A function starts at the first byte of a large upload, and the bytes are on its node, which is
// not the gateway's, before it is ready.
func TestABodyTravelsDuringTheColdStart(t *testing.T) {
	const size = 20_000_000
	deploy(t, testbed.Function{Name: "upload", Node: testbed.Cloud, Annotations: withBody, Env: map[string]string{"WITNESS_SLOW": "3s"}})
	u := newUpload(t, size)
	defer u.Close() // or its sender waits, should the test fail
	answered := make(chan answer, 1)
	go func() {
		a, err := call{node: testbed.Edge, function: "upload", body: u}.do(t.Context())
		if err != nil {
			t.Error(err)
		}
		answered <- a
	}()
	_, _ = u.to.Write(u.content[:1])
	eventually(t, "the first byte starts the function", func() error {
		if len(function(t, "upload").Instances) == 0 {
			return fmt.Errorf("no instance")
		}
		return nil
	})
	go func() { _, _ = u.to.Write(u.content[1:]); _ = u.to.Close() }()
	eventually(t, "all of it is on the function's node", func() error {
		if n := buffered(t, testbed.Cloud); n != size { // of a body without a length: once it is complete

			return fmt.Errorf("%d bytes", n)
		}
		return nil
	})
	if in := function(t, "upload").Instances; len(in) != 1 || in[0].Phase != platform.Starting {
		t.Errorf("the function was ready before its input: %+v", in)
	}
	a := <-answered
	if a.status != http.StatusOK || a.report.Body.SHA256 != u.digest() || a.report.Body.Bytes != size {
		t.Fatalf("it is answered %d: %.300s", a.status, a.body)
	}
	tr := traceWith(t, a.header.Get(filterapi.HeaderRequest), tracing.Receive, 2)
	p, err := tr.Phases()
	if err != nil || p.Delta <= 0 || p.Delta > p.Beta {
		t.Errorf("the phases are %+v, %v", p, err)
	}
	nothingHalfMade(t)
}

// Hot, a request goes straight to the instance, whose input is no concern of the daemon's.
func TestAHotBodyPassesNoDaemon(t *testing.T) {
	deploy(t, testbed.Function{Name: "hot-body", Annotations: withBody})
	if a := (call{function: "hot-body", body: strings.NewReader("hello")}).ok(t); a.report.Body.Bytes != 5 || a.header.Get(filterapi.HeaderRequest) == "" {
		t.Errorf("cold: %+v", a.report)
	}
	eventually(t, "the gateway sends to the instance", func() error {
		hot := call{function: "hot-body", body: strings.NewReader("hello")}.ok(t)
		if id := hot.header.Get(filterapi.HeaderRequest); id != "" || hot.report.Body.Bytes != 5 {
			return fmt.Errorf("request %q still went through the daemon", id)
		}
		return nil
	})
}

// A body larger than the buffer reaches its function all the same, and the trace says that it
// was not kept.
func TestABodyLargerThanTheBuffer(t *testing.T) {
	deploy(t, testbed.Function{Name: "too-large-to-keep", Annotations: withBody})
	content := make([]byte, bufferLimit+10_000_000)
	_, _ = rand.Read(content) // never fails
	a := call{function: "too-large-to-keep", body: bytes.NewReader(content)}.ok(t)
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); a.report.Body.SHA256 != want {
		t.Errorf("body %+v, want %s", a.report.Body, want)
	}
	var degraded any
	for _, s := range traceOf(t, a.header.Get(filterapi.HeaderRequest)).Spans {
		if s.Name == tracing.Activation {
			degraded = s.Attributes[string(tracing.Degraded)]
		}
	}
	if degraded != "BodyNotBuffered" {
		t.Errorf("degraded is %v", degraded)
	}
	nothingHalfMade(t)
}

// Wherever clients break off, and however many, nothing of their requests is left, on no node.
func TestClientsThatBreakOffLeaveNoBody(t *testing.T) {
	const size = 4_000_000
	deploy(t, testbed.Function{Name: "cut", Node: testbed.Cloud, Annotations: withBody, Env: map[string]string{"WITNESS_SLOW": "2s"}})
	var g sync.WaitGroup
	for n := range 16 {
		cut := mathrand.IntN(size)
		g.Go(func() {
			u := newUpload(t, size)
			go func() {
				_, _ = u.to.Write(u.content[:cut])
				_ = u.to.CloseWithError(io.ErrUnexpectedEOF)
			}()
			if a, err := (call{node: []string{testbed.Edge, testbed.Cloud}[n%2], function: "cut", body: u}).do(t.Context()); err == nil && a.status == http.StatusOK {
				t.Errorf("after %d bytes it is answered %s", cut, a.body)
			}
		})
	}
	u := newUpload(t, size) // one among them that does not
	go func() { _, _ = u.to.Write(u.content); _ = u.to.Close() }()
	if a := (call{function: "cut", body: u}).ok(t); a.report.Body.SHA256 != u.digest() {
		t.Errorf("body %+v", a.report.Body)
	}
	g.Wait()
	nothingHalfMade(t)
}

// Many bodies at once never mix.
func TestManyColdBodiesKeepApart(t *testing.T) {
	deploy(t, testbed.Function{Name: "many-bodies", Node: testbed.Cloud, Annotations: withBody})
	began := time.Now()
	var g sync.WaitGroup
	for n := range 30 {
		g.Go(func() {
			u := newUpload(t, 100_000+n)
			go func() { _, _ = u.to.Write(u.content); _ = u.to.Close() }()
			a, err := call{function: "many-bodies", body: u}.do(t.Context())
			if err != nil || a.report.Body.SHA256 != u.digest() {
				t.Errorf("after %v: %v, %d: %.300s", time.Since(began), err, a.status, a.body)
			}
		})
	}
	g.Wait()
	nothingHalfMade(t)
}
