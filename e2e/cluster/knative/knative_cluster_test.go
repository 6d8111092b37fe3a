//go:build cluster

package knative_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// openTimeout is for a machine that is busy, and has to build images.
	openTimeout = 10 * time.Minute
	// coldTimeout: Knative's window and grace, and the end of a pod.
	coldTimeout = 2 * time.Minute
	// deletedTimeout is for what a test leaves.
	deletedTimeout = 2 * time.Minute
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed is what the tests share.
type bed struct {
	*testing.T
	*world.World
	knative *world.Knative
	client  *world.Client
	video   coldrun.Case
}

// open takes the cluster that runs, or brings one up, with Headstart and Knative.
func open(t *testing.T) *bed {
	ctx, cancel := context.WithTimeout(t.Context(), openTimeout)
	defer cancel()
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	config := world.Config{Source: source, WorkDir: filepath.Join(source, "out/cluster/knative"), Reuse: true, Progress: func(s string) { t.Log(s) }}
	w, err := world.Attach(ctx, config)
	if err != nil {
		t.Logf("no cluster with Headstart runs: %v", err)
		if w, err = world.Open(ctx, config); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	} else {
		t.Cleanup(func() { // of the connections only
			if err := w.Cloud.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
	b := &bed{T: t, World: w}
	b.client, err = w.Client(ctx)
	b.must(err)
	t.Cleanup(b.client.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	if _, err := b.client.Status(ctx); err != nil {
		values, err := w.BuildImages(ctx, "v1")
		b.must(err)
		_, err = w.Install(ctx, values)
		b.must(err)
	}
	b.knative, err = w.InstallKnative(ctx)
	b.must(err)
	t.Cleanup(b.knative.Close)
	b.video, err = coldrun.Generated(ctx, w.Cloud.S3, 8)
	b.must(err)
	b.video.Relayed, b.video.Off, b.video.On = true, "kn-test-off", "kn-test-on"
	pair := world.KnativePair(b.video, nil)
	b.must(w.DeployKnative(ctx, pair...))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), deletedTimeout)
		defer cancel()
		if err := w.RemoveKnative(ctx, pair...); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func TestKnative(t *testing.T) {
	b := open(t)
	for _, step := range []struct {
		name string
		do   func(*bed)
	}{
		{"AColdRequestThroughTheActivatorGetsItsWholeInput", (*bed).coldRequest},
		{"ItsOwnAutoscalerScalesToZero", (*bed).backToZero},
		{"NobodyElseTouchesItsScale", (*bed).scaleIsItsOwn},
		{"AMissingInputStartsNothing", (*bed).missingInput},
		{"ANewRevisionLosesNoRequest", (*bed).newRevision},
		{"ItsPodHasItsVolume", (*bed).volume},
	} {
		t.Run(step.name, func(t *testing.T) {
			of := *b
			of.T = t
			step.do(&of)
		})
	}
}

// coldRequest measures one with Headstart and one without: wrong answers, and inputs that
// came another way, are errors of the measurement.
func (b *bed) coldRequest() {
	run := coldrun.Run{World: b.client, Repetitions: 1, Bucket: testbed.Bucket, Progress: func(s string) { b.Log(s) }, Cold: b.knative.Cold}
	results, err := run.Measure(b.Context(), []coldrun.Case{b.video})
	b.must(err)
	r := results[0]
	if r.Wrong > 0 {
		b.Errorf("%d answers are wrong", r.Wrong)
	}
	on := r.On[0]
	b.Logf("off %v, on %v, cold start %v, fetch %v", r.Off[0].Total, on.Total, r.Off[0].Phases.Beta, on.Phases.Delta)
	names := map[string]bool{}
	for _, s := range on.Trace.Spans {
		names[s.Name] = true
		if s.Name == tracing.Activation && s.Attributes[string(tracing.FaaSColdStart)] != true {
			b.Errorf("the trace does not call the request a cold one: %v", s.Attributes)
		}
	}
	for name, wanted := range map[string]bool{tracing.Fetch: true, tracing.Placement: true, tracing.Relay: true, tracing.Deliver: false, tracing.SandboxCreate: false} {
		if names[name] != wanted {
			b.Errorf("the trace has %s: %v", name, names[name])
		}
	}
}

// backToZero also looks at what the operator sees of it.
func (b *bed) backToZero() {
	b.must(testbed.Poll(b.Context(), coldTimeout, func(ctx context.Context) error {
		if _, _, err := b.post(ctx, b.video.Object); err != nil {
			return err
		}
		return b.is(ctx, "ready", func(instances int, ready bool) bool { return instances > 0 && ready })
	}))
	b.must(testbed.Poll(b.Context(), coldTimeout, func(ctx context.Context) error { return b.knative.Cold(ctx, b.video.On) }))
	b.must(testbed.Poll(b.Context(), coldTimeout, func(ctx context.Context) error {
		return b.is(ctx, "cold", func(instances int, _ bool) bool { return instances == 0 })
	}))
}

// is asks what `headstart status` says of the function.
func (b *bed) is(ctx context.Context, what string, ok func(instances int, ready bool) bool) error {
	s, err := b.client.Status(ctx)
	if err != nil {
		return err
	}
	for _, f := range s.Functions {
		if f.Name != world.Functions+"/"+b.video.On {
			continue
		}
		ready := slices.ContainsFunc(f.Instances, func(in admin.Instance) bool { return in.Phase == platform.Ready })
		if f.Scaler == "Knative" && ok(len(f.Instances), ready) {
			return nil
		}
		return fmt.Errorf("the function is not %s: %+v", what, f)
	}
	return fmt.Errorf("there is no function %s", b.video.On)
}

// scaleIsItsOwn looks at who has written the Deployments' fields.
func (b *bed) scaleIsItsOwn() {
	out, err := b.Output(b.Context(), nil, "kubectl", "-n", world.Functions, "get", "deployments", "-l", "serving.knative.dev/service="+b.video.On, "-o", "json", "--show-managed-fields")
	b.must(err)
	var list struct {
		Items []struct {
			Metadata struct {
				ManagedFields []struct {
					Manager  string         `json:"manager"`
					FieldsV1 map[string]any `json:"fieldsV1"`
				} `json:"managedFields"`
			} `json:"metadata"`
		} `json:"items"`
	}
	b.must(json.Unmarshal([]byte(out), &list))
	scalers := map[string]bool{}
	for _, d := range list.Items {
		for _, m := range d.Metadata.ManagedFields {
			if strings.Contains(m.Manager, "headstart") {
				b.Errorf("%s has written %v", m.Manager, m.FieldsV1)
			}
			if spec, ok := m.FieldsV1["f:spec"].(map[string]any); ok && spec["f:replicas"] != nil {
				scalers[m.Manager] = true
			}
		}
	}
	if len(scalers) != 1 || !scalers["autoscaler"] {
		b.Errorf("its replicas are written by %v", scalers)
	}
}

// missingInput is refused before anything is started for it.
func (b *bed) missingInput() {
	b.must(testbed.Poll(b.Context(), coldTimeout, func(ctx context.Context) error { return b.knative.Cold(ctx, b.video.On) }))
	status, ours, err := b.post(b.Context(), "camera-7/nothing.mjpeg")
	b.must(err)
	if status != http.StatusNotFound || !ours {
		b.Errorf("answered with %d, by Headstart: %v", status, ours)
	}
	b.must(b.knative.Cold(b.Context(), b.video.On))
}

// newRevision deploys one while requests come in. Until the gateways know of it, they may
// send requests Knative's own way.
func (b *bed) newRevision() {
	changed := make(chan error, 1)
	var deploying sync.WaitGroup
	defer deploying.Wait()
	deploying.Go(func() {
		changed <- b.DeployKnative(b.Context(), world.KnativePair(b.video, map[string]string{"VERSION": "second"})[1])
	})
	for n := 0; ; n++ {
		status, _, err := b.post(b.Context(), b.video.Object)
		b.must(err)
		if status != http.StatusOK {
			b.Fatalf("request %d: answered with %d", n, status)
		}
		select {
		case err := <-changed:
			b.must(err)
			b.must(testbed.Poll(b.Context(), coldTimeout, func(ctx context.Context) error {
				if status, ours, err := b.post(ctx, b.video.Object); err != nil || status != http.StatusOK || !ours {
					return fmt.Errorf("the new revision answers with %d, by Headstart: %v; %w", status, ours, err)
				}
				return nil
			}))
			return
		default:
		}
	}
}

// volume deploys a function with one, which Knative starts once.
func (b *bed) volume() {
	const key, seen = "knative/volume/a/weights", "SEEN_BY"
	want := bytes.Repeat([]byte("a model's weights "), 100_000)
	b.must(b.Cloud.S3.Put(b.Context(), key, bytes.NewReader(want)))
	f := world.KnativeFunction{Name: "kn-test-volume", Env: map[string]string{seen: b.Name()}, Pod: map[string]string{
		"headstart.dev/volumes": "models=s3://" + testbed.Bucket + "/knative/volume/", "headstart.dev/store": world.StoreName}}
	b.must(b.DeployKnative(b.Context(), f))
	defer func() { b.must(b.RemoveKnative(context.WithoutCancel(b.Context()), f)) }()
	pids, err := world.Processes("fire")
	b.must(err)
	for _, pid := range pids {
		// One that has ended meanwhile has neither.
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if !strings.Contains(string(environ), seen+"="+b.Name()+"\x00") {
			continue
		}
		got, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/headstart/volumes/models/a/weights", pid))
		if err != nil || !bytes.Equal(got, want) {
			b.Errorf("the pod has %d bytes of %d: %v", len(got), len(want), err)
		}
		return
	}
	b.Errorf("none of the %d processes is the function's", len(pids))
}

// post sends a request with the object as its input; ours tells whether Headstart had it.
func (b *bed) post(ctx context.Context, object string) (status int, ours bool, err error) {
	r, err := b.client.Request(ctx, http.MethodPost, b.video.On)
	if err != nil {
		return 0, false, err
	}
	r.Header.Set("x-bucket", testbed.Bucket)
	r.Header.Set("x-key", object)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, false, err
	}
	return resp.StatusCode, resp.Header.Get(filterapi.HeaderRequest) != "", nil
}
