//go:build integration

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

func TestAColdRequestFindsItsInput(t *testing.T) {
	deploy(t, testbed.Function{Name: "finds", Annotations: withInput()})
	digest := put(t, "cold/one", 5_000_000)
	a := call{function: "finds", path: "/a%2Fb?q=1", header: forInput("cold/one")}.ok(t)
	id := a.header.Get(filterapi.HeaderRequest)
	r := a.report
	if r.Body.SHA256 != digest || r.Body.Error != "" {
		t.Errorf("body is %+v, want digest %s", r.Body, digest)
	}
	if r.File.SHA256 != digest || r.File.Error != "" || r.File.Writable {
		t.Errorf("file is %+v, want digest %s, read-only", r.File, digest)
	}
	if !slices.Equal(r.Dir, []string{id}) || r.Header.Get("X-Headstart-Input-File") != "/headstart/input/"+id {
		t.Errorf("request %s: directory %v, header %q", id, r.Dir, r.Header.Get("X-Headstart-Input-File"))
	}
	if r.Path != "/a%2Fb?q=1" || r.Method != http.MethodPost || r.Host != "finds.default.headstart.local" {
		t.Errorf("the function saw %s %s %s", r.Method, r.Host, r.Path)
	}
	if r.UID != 65532 {
		t.Errorf("the function runs as user %d, not as its image says", r.UID)
	}
	for _, h := range []string{"X-Headstart-Input", "X-Headstart-Function", "X-Headstart-Instance"} {
		if v := r.Header.Get(h); v != "" {
			t.Errorf("the function saw the internal header %s: %s", h, v)
		}
	}
	for _, want := range []string{"HEADSTART_INPUT_DIR=/headstart/input"} {
		if !slices.Contains(r.Env, want) {
			t.Errorf("environment %v lacks %s", r.Env, want)
		}
	}

	// Hot: the input comes the same way, and the file of the request before is gone.
	second := put(t, "cold/two", 100_000)
	a = call{function: "finds", header: forInput("cold/two")}.ok(t)
	if a.report.Body.SHA256 != second || a.report.File.SHA256 != second || a.report.Instance() != r.Instance() {
		t.Errorf("hot request: %+v", a.report)
	}
	if want := []string{a.header.Get(filterapi.HeaderRequest)}; !slices.Equal(a.report.Dir, want) {
		t.Errorf("hot request: directory %v, want %v", a.report.Dir, want)
	}
	nothingHalfMade(t)
}

// A request that names three objects finds all of them, two as files by their names.
func TestAColdRequestFindsItsNamedInputs(t *testing.T) {
	deploy(t, testbed.Function{Name: "names", Annotations: withInput(
		"headstart.dev/input.mask", "s3://{header.x-bucket}/{header.x-key}.png",
		"headstart.dev/input.subtitles", "s3://{header.x-bucket}/{query.lang}/{header.x-key}")})
	want := map[string]string{"mask": put(t, "named/one.png", 2_000_000), "subtitles": put(t, "en/named/one", 1000)}
	digest := put(t, "named/one", 5_000_000)
	for _, state := range []string{"cold", "hot"} {
		a := call{function: "names", path: "/?lang=en", header: forInput("named/one")}.ok(t)
		if a.report.Body.SHA256 != digest || a.report.File.SHA256 != digest {
			t.Errorf("%s: the input is %+v, want digest %s", state, a.report, digest)
		}
		for name, digest := range want {
			if got := a.report.Inputs[name]; got.SHA256 != digest || got.Error != "" || got.Writable {
				t.Errorf("%s: %s is %+v, want digest %s, read-only", state, name, got, digest)
			}
		}
		if len(a.report.Inputs) != len(want) || !slices.Contains(
			a.report.Env, "HEADSTART_INPUTS_DIR=/headstart/inputs",
		) {
			t.Errorf("%s: named inputs %v, environment %v", state, a.report.Inputs, a.report.Env)
		}
	}
	got, err := call{function: "names", path: "/?lang=de", header: forInput("named/one")}.do(t.Context())
	if err != nil || got.status != http.StatusNotFound || got.problem.Title != "InputNotFound" || got.problem.Field != "headstart.dev/input.subtitles" {
		t.Errorf("without one of them: %d %+v, %v", got.status, got.problem, err)
	}
	nothingHalfMade(t)
}

func TestARequestWithABodyOfItsOwnKeepsIt(t *testing.T) {
	deploy(t, testbed.Function{Name: "own-body", Annotations: withInput()})
	digest := put(t, "own/input", 300_000)
	a := call{function: "own-body", header: forInput("own/input"), body: strings.NewReader("parameters")}.ok(t)
	if a.report.Body.Bytes != int64(len("parameters")) || a.report.File.SHA256 != digest {
		t.Errorf("body %+v, file %+v", a.report.Body, a.report.File)
	}
}

func TestARequestWithoutAnInputGoesThrough(t *testing.T) {
	deploy(t, testbed.Function{Name: "no-input", Annotations: withInput()})
	cold := call{function: "no-input", body: strings.NewReader("hello")}.ok(t)
	if cold.report.Body.Bytes != 5 || cold.report.File.Bytes != 0 || len(cold.report.Dir) != 0 {
		t.Errorf("cold: %+v", cold.report)
	}
	// Hot, it goes straight to the instance: the daemon, which names each request that
	// it handles, has no part in it.
	eventually(t, "the gateway sends to the instance", func() error {
		hot := call{function: "no-input"}.ok(t)
		if id := hot.header.Get(filterapi.HeaderRequest); id != "" {
			return fmt.Errorf("request %s still went through the daemon", id)
		}
		return nil
	})
}

func TestAnInputReachesAnotherNode(t *testing.T) {
	deploy(t, testbed.Function{Name: "far", Node: testbed.Cloud, Annotations: withInput()})
	digest := put(t, "far/one", 3_000_000)
	a := call{node: testbed.Edge, function: "far", header: forInput("far/one")}.ok(t)
	if a.report.Body.SHA256 != digest || a.report.File.SHA256 != digest {
		t.Errorf("body %+v, file %+v", a.report.Body, a.report.File)
	}
	tr := traceWith(t, a.header.Get(filterapi.HeaderRequest), tracing.Activation, 2)
	var nodes []string
	for _, s := range tr.Spans {
		if s.Name == tracing.Activation {
			nodes = append(nodes, fmt.Sprint(s.Attributes[string(tracing.Node)]))
		}
		if s.Name == tracing.Transfer && s.Attributes[string(tracing.TransferKind)] == tracing.TransferPeer && s.Service != tracing.ServiceNode {
			t.Errorf("span %+v", s)
		}
	}
	if !slices.Equal(nodes, []string{testbed.Edge, testbed.Cloud}) {
		t.Errorf("activations on %v", nodes)
	}
	nothingHalfMade(t)
}

func TestAFunctionMayFetchForItself(t *testing.T) {
	deploy(t, testbed.Function{Name: "fetches", Image: testbed.Fire})
	put(t, "self/one", 1000)
	a, err := call{function: "fetches", header: forInput("self/one")}.do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Random bytes are no video, and it must have fetched them to say so.
	if a.status != http.StatusUnprocessableEntity {
		t.Errorf("status %d: %s", a.status, a.body)
	}
}

func TestConcurrentColdRequestsKeepTheirInputsApart(t *testing.T) {
	deploy(t, testbed.Function{Name: "many", Annotations: withInput()})
	const requests = 40
	digests := make([]string, requests)
	for i := range digests {
		digests[i] = put(t, fmt.Sprintf("many/%d", i), 50_000+i)
	}
	var wg sync.WaitGroup
	instances := make([]string, requests)
	for i := range requests {
		wg.Go(func() {
			a, err := call{function: "many", header: forInput(fmt.Sprintf("many/%d", i))}.do(t.Context())
			if err != nil || a.status != http.StatusOK || a.report.Body.SHA256 != digests[i] || a.report.File.SHA256 != digests[i] {
				t.Errorf("request %d: %v, status %d: %.300s", i, err, a.status, a.body)
			}
			instances[i] = a.report.Instance()
		})
	}
	wg.Wait()
	if slices.Sort(instances); instances[0] == "" || instances[0] != instances[requests-1] {
		t.Errorf("several instances answered: %v", instances)
	}
	nothingHalfMade(t)
}

func TestTheGatewayHoldsNoBody(t *testing.T) {
	deploy(t, testbed.Function{Name: "large", Annotations: withInput()})
	pid := bed.PID("gateway-" + testbed.Edge)
	call{function: "large", body: bytes.NewReader(make([]byte, 1<<20))}.ok(t) // fills its pools
	const size = 256 << 20
	grown, err := testbed.Growth(pid, func() error {
		a := call{function: "large", body: bytes.NewReader(make([]byte, size))}.ok(t)
		if a.report.Body.Bytes != size {
			return fmt.Errorf("the function got %d bytes", a.report.Body.Bytes)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if grown > 16<<20 {
		t.Errorf("the gateway grew by %d bytes with a body of %d", grown, size)
	}
}

func TestOneRequestIsOneTrace(t *testing.T) {
	deploy(t, testbed.Function{Name: "traced", Annotations: withInput()})
	put(t, "traced/one", 2_000_000)
	const incoming = "4bf92f3577b34da6a3ce929d0e0e4736"
	header := forInput("traced/one")
	header["traceparent"] = "00-" + incoming + "-00f067aa0ba902b7-01"
	a := call{function: "traced", header: header}.ok(t)
	if parent := a.report.Header.Get("Traceparent"); !strings.Contains(parent, incoming) {
		t.Errorf("the function got traceparent %q", parent)
	}
	id := a.header.Get(filterapi.HeaderRequest)
	tr := traceOf(t, id)
	if tr.ID != incoming {
		t.Errorf("the trace is %s, not the client's %s", tr.ID, incoming)
	}
	byName := map[string]trace.Span{}
	for _, s := range tr.Spans {
		byName[s.Name] = s
	}
	for name, service := range map[string]string{
		tracing.Gateway: tracing.ServiceGateway, tracing.Activation: tracing.ServiceNode, tracing.Placement: tracing.ServiceControlPlane,
		tracing.SandboxCreate: tracing.ServiceNode, tracing.RuncCreate: tracing.ServiceShim, tracing.RuncStart: tracing.ServiceShim,
		tracing.RuntimeStart: tracing.ServiceNode, tracing.Fetch: tracing.ServiceNode, tracing.Transfer: tracing.ServiceNode,
		tracing.Deliver: tracing.ServiceNode, tracing.Execute: tracing.ServiceNode,
	} {
		if s, ok := byName[name]; !ok || s.Service != service {
			t.Errorf("span %s of %s: got %+v", name, service, s)
		}
	}
	attrs := byName[tracing.Activation].Attributes
	for key, want := range map[string]any{"faas.coldstart": true, "faas.trigger": "http", "faas.invocation_id": id, "faas.name": "default/traced", "headstart.request": id} {
		if attrs[key] != want {
			t.Errorf("activation's %s is %v, want %v", key, attrs[key], want)
		}
	}
	if s := byName[tracing.Fetch]; s.Start.After(byName[tracing.RuntimeStart].Start) {
		t.Error("the fetch began after the sandbox was made")
	}
}

// traceOf waits until the request's trace is whole: it has the span of each phase, and each
// span's parent, which another part of the platform may send later than its children.
func traceOf(t *testing.T, id string) (tr trace.Trace) {
	t.Helper()
	eventually(t, "phases of trace "+id, func() error {
		tr = spansOf(t, id)
		if _, err := tr.Phases(); err != nil {
			return err
		}
		root, _ := tr.Root()
		there := map[string]bool{root.Parent: true}
		for _, s := range tr.Spans {
			there[s.ID] = true
		}
		for _, s := range tr.Spans {
			if !there[s.Parent] {
				return fmt.Errorf("span %s has a parent, %s, that is not there", s.Name, s.Parent)
			}
		}
		return nil
	})
	return tr
}

// traceWith waits for a trace as traceOf does, and until it has that many spans of a name: two
// nodes send theirs when it suits each.
func traceWith(t *testing.T, id, name string, count int) (tr trace.Trace) {
	t.Helper()
	eventually(t, fmt.Sprint(count, " spans ", name), func() error {
		tr = traceOf(t, id)
		found := 0
		for _, s := range tr.Spans {
			if s.Name == name {
				found++
			}
		}
		if found != count {
			return fmt.Errorf("there are %d", found)
		}
		return nil
	})
	return tr
}

// spansOf waits until the request's trace has the gateway's span, which comes last.
func spansOf(t *testing.T, id string) (tr trace.Trace) {
	t.Helper()
	eventually(t, "trace "+id, func() (err error) {
		if tr, err = bed.Client().Trace(context.Background(), id); err != nil {
			return err
		}
		if root, ok := tr.Root(); !ok || root.Service != tracing.ServiceGateway {
			return fmt.Errorf("no span of the gateway")
		}
		return nil
	})
	return tr
}

func TestClientsCannotSpeakForTheGateway(t *testing.T) {
	deploy(t, testbed.Function{Name: "spoofed", Annotations: withInput()})
	put(t, "spoofed/secret", 1000)
	a := call{function: "spoofed", header: map[string]string{
		"x-headstart-input": "s3://" + testbed.Bucket + "/spoofed/secret", "x-headstart-function": "default/other", "x-headstart-request": strings.Repeat("0", 32),
		"x-headstart-instance": "other", "x-headstart-input-file": "/etc/passwd"}}.ok(t)
	if a.report.Body.Bytes != 0 || a.report.File.Bytes != 0 || a.header.Get(filterapi.HeaderRequest) == strings.Repeat("0", 32) {
		t.Errorf("the client's own headers counted: %+v", a.report)
	}
}

func TestAnObjectThatChangesWhileItIsReadIsRefused(t *testing.T) {
	deploy(t, testbed.Function{Name: "changing", Annotations: withInput()})
	number := 0
	eventually(t, "an object changes while it is read", func() error { // a fetch may be over before
		nothingHalfMade(t)
		number++
		key := fmt.Sprintf("changing/%d", number)
		before := put(t, key, 30_000_000)
		answered := make(chan answer, 1)
		go func() {
			a, err := call{function: "changing", header: forInput(key)}.do(context.Background())
			if err != nil {
				t.Error(err)
			}
			answered <- a
		}()
		eventually(t, "the fetch has begun", func() error {
			entries, err := os.ReadDir(filepath.Join(bed.StateDir(testbed.Edge), "buffer"))
			for _, e := range entries {
				if !strings.HasPrefix(e.Name(), ".") {
					return err
				}
			}
			if len(answered) > 0 {
				return err
			}
			return errors.Join(err, errors.New("nothing is buffered"))
		})
		put(t, key, 1000)
		a := <-answered
		if a.status == http.StatusOK && a.report.File.SHA256 == before {
			return errors.New("it was read whole before")
		}
		if a.status != http.StatusBadGateway || a.problem.Title != "InputChanged" || !strings.Contains(a.problem.Field, "headstart.dev/input") {
			t.Errorf("status %d: %.300s", a.status, a.body)
		}
		return nil
	})
	nothingHalfMade(t)
}
