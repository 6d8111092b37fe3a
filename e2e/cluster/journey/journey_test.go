//go:build cluster

// Package journey goes the way of a user on a real cluster, by the documented steps:
// check, install, opt in, use, upgrade, uninstall.
package journey

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/control-plane/apiservertest"
	"github.com/headstart-mesh/headstart/control-plane/check"
	"github.com/headstart-mesh/headstart/control-plane/platform"
	"github.com/headstart-mesh/headstart/control-plane/trace"
	"github.com/headstart-mesh/headstart/e2e/cluster"
	"github.com/headstart-mesh/headstart/e2e/cluster/world"
	"github.com/headstart-mesh/headstart/e2e/coldrun"
	"github.com/headstart-mesh/headstart/e2e/load"
	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

const (
	// openTimeout is for a machine that is busy; installing Istio is the most of it.
	openTimeout = 10 * time.Minute
	// settleTimeout bounds what the cluster does by itself.
	settleTimeout = 90 * time.Second
	// commandsMost is how many commands an installation may take.
	commandsMost = 5
	// released is the version that the README installs.
	released = "v1.2.0"
	// rate of the load during changes, in requests per second.
	rate = 20
	// requestTimeout is what such a request may take.
	requestTimeout = 20 * time.Second
)

// journey is what the steps share.
type journey struct {
	*testing.T
	*world.World
	gateway netip.AddrPort
	video   coldrun.Case
}

func TestJourney(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), openTimeout)
	defer cancel()
	source, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	w, err := world.Open(ctx, world.Config{Source: source, WorkDir: filepath.Join(source, "out/cluster/journey"), Reuse: true, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}()
	before, err := w.TakeSnapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.BuildImages(ctx, released); err != nil {
		t.Fatal(err)
	}
	release, err := w.Release(ctx, released)
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.BuildImages(ctx, "v2")
	if err != nil {
		t.Fatal(err)
	}
	j := &journey{T: t, World: w}
	if j.video, err = coldrun.Generated(ctx, w.Cloud.S3, 8); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func(*journey)
	}{
		{"TheClusterIsFit", (*journey).theClusterIsFit},
		{"Install", func(j *journey) { j.installByThePage(release) }},
		{"WhatIsInstalledIsSound", (*journey).whatIsInstalledIsSound},
		{"WrongAnnotationsAreRefused", (*journey).wrongAnnotationsAreRefused},
		{"AColdRequestGetsItsInput", (*journey).aColdRequestGetsItsInput},
		{"ADriftIsNoticed", (*journey).aDriftIsNoticed},
		{"Upgrade", func(j *journey) { j.underLoad(world.Function{Name: "hot"}, func() { j.install(second) }) }},
		{"AfterTheUpgradeAColdRequestGetsItsInput", (*journey).aColdRequestGetsItsInput},
		{"Uninstall", func(j *journey) {
			// Pods of the runtime class have to go first: without the shim nobody could end them.
			j.undeploy("fire", "hot")
			j.underLoad(world.Function{Name: "plain", Plain: true}, j.uninstall)
		}},
		{"NothingIsLeft", func(j *journey) { j.nothingIsLeft(before) }},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.do(&journey{T: t, World: w, gateway: j.gateway, video: j.video}) }) {
			return // the next step builds on this one
		}
		if !j.gateway.IsValid() {
			if j.gateway, err = w.Gateway(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// checks runs `headstart check` and returns what failed.
func (j *journey) checks(args ...string) []string {
	j.Helper()
	var got []check.Result
	out, err := j.Output(j.Context(), nil, "headstart", append([]string{"check", "-o", "json", "--kubeconfig", j.Kubeconfig()}, args...)...)
	if decodeErr := json.Unmarshal([]byte(out), &got); decodeErr != nil {
		j.Fatalf("%v: %v: %s", err, decodeErr, out)
	}
	if len(got) == 0 {
		j.Fatalf("nothing was checked: %s", out)
	}
	var failed []string
	for _, c := range got {
		if c.Status == check.Fail {
			failed = append(failed, fmt.Sprintf("%s: %s %v", c.ID, c.Message, c.Problems))
		}
	}
	return failed
}

func (j *journey) theClusterIsFit() {
	if failed := j.checks("--pre"); len(failed) > 0 {
		j.Errorf("before the installation: %q", failed)
	}
}

func (j *journey) install(values string) {
	took, err := j.World.Install(j.Context(), values)
	if err != nil {
		j.Fatal(err)
	}
	j.Logf("ready after %v", took)
}

func (j *journey) whatIsInstalledIsSound() {
	err := testbed.Poll(j.Context(), settleTimeout, func(context.Context) error {
		if failed := j.checks(); len(failed) > 0 {
			return fmt.Errorf("after the installation: %q", failed)
		}
		return nil
	})
	if err != nil {
		j.Error(err)
	}
}

// A wrong annotation does not get past the API server, which names key, value and fix.
func (j *journey) wrongAnnotationsAreRefused() {
	err := j.Deploy(j.Context(), world.Function{Name: "wrong", Annotations: map[string]string{"headstart.dev/scale-to-zero": "soon"}})
	if err == nil {
		j.Fatal("it is taken")
	}
	for _, part := range []string{"headstart.dev/scale-to-zero", "soon"} {
		if !strings.Contains(err.Error(), part) {
			j.Errorf("the refusal does not name %s: %v", part, err)
		}
	}
	if err := j.Tool(j.Context(), nil, "kubectl", "-n", world.Functions, "delete", "deployment,virtualservice", "wrong", "--ignore-not-found"); err != nil {
		j.Error(err)
	}
}

// aColdRequestGetsItsInput goes across nodes: the function may not run on the gateway's.
func (j *journey) aColdRequestGetsItsInput() {
	const name = "fire"
	ctx := j.Context()
	if err := j.Deploy(ctx, world.Function{Name: name, Node: j.otherNode(), Annotations: map[string]string{
		"headstart.dev/scale-to-zero": "2s", "headstart.dev/input": testbed.Input, "headstart.dev/store": world.StoreName}}); err != nil {
		j.Fatal(err)
	}
	j.awaitFunction(name, func(f admin.Function) error {
		if len(f.Instances) > 0 {
			return fmt.Errorf("%d instances", len(f.Instances))
		}
		return nil
	})
	// Until then the instance's node may be unknown to the control plane that is asked, which sends the
	// request to the instance itself: its daemon, and so the trace, have no part in the start.
	j.awaitConnected()
	resp, body := j.request(name)
	var answer struct{ SHA256 string }
	if err := json.Unmarshal(body, &answer); err != nil || answer.SHA256 != j.video.SHA256 {
		j.Fatalf("%s: the function has not seen the video: %v: %s", resp.Status, err, body)
	}
	if timing := resp.Header.Get("Server-Timing"); !strings.Contains(timing, `desc="body"`) {
		j.Errorf("the function fetched for itself: %s", timing)
	}
	j.traceIsWhole(resp.Header.Get(filterapi.HeaderRequest))
	j.awaitFunction(name, func(f admin.Function) error {
		for _, in := range f.Instances {
			if in.Phase != platform.Stopping {
				return fmt.Errorf("%s is %s", in.ID, in.Phase)
			}
		}
		return nil
	})
}

// driftWithin is how soon it has to be noticed that a node has lost the runtime.
const driftWithin = time.Minute

// aDriftIsNoticed takes the runtime out of a node's containerd, as a tool would that manages its configuration, and has the installer put it
// there again as docs/operations/troubleshooting.md says.
func (j *journey) aDriftIsNoticed() {
	apiservertest.Since(j.T, j, "1.31", "what kubelets say of a node's runtimes")
	ctx, name := j.Context(), j.otherNode()
	i := slices.IndexFunc(j.Nodes(), func(n cluster.Node) bool { return n.Name == name })
	if out, err := j.Nodes()[i].Run(ctx, "rm", "/etc/containerd/conf.d/headstart.toml"); err != nil {
		j.Fatalf("%v: %s", err, out)
	}
	if err := j.RestartContainerd(ctx, name); err != nil {
		j.Fatal(err)
	}
	has := func(wanted bool) func(context.Context) error {
		return func(context.Context) error {
			failed := j.checks()
			if drifted := slices.ContainsFunc(failed, func(f string) bool { return strings.Contains(f, name+" drifted") }); drifted != wanted {
				return fmt.Errorf("drifted is %v, checks fail: %q", drifted, failed)
			}
			return nil
		}
	}
	if err := testbed.Poll(ctx, driftWithin, has(true)); err != nil {
		j.Fatal(err)
	}
	err := j.Tool(ctx, nil, "kubectl", "-n", world.System, "delete", "pod", "-l", "app.kubernetes.io/name=headstart-installer", "--field-selector", "spec.nodeName="+name)
	if err == nil {
		err = testbed.Poll(ctx, settleTimeout, has(false))
	}
	if err != nil {
		j.Fatal(err)
	}
	j.whatIsInstalledIsSound()
}

// otherNode is one that the gateway is not on.
func (j *journey) otherNode() string {
	j.Helper()
	node, err := j.Output(j.Context(), nil, "kubectl", "-n", "istio-system", "get", "pods", "-l", "app=istio-ingressgateway", "-o", "jsonpath={.items[0].spec.nodeName}")
	if err != nil {
		j.Fatal(err)
	}
	for _, n := range j.Nodes() {
		if n.Name != strings.TrimSpace(node) {
			return n.Name
		}
	}
	j.Fatal("there is one node only")
	return ""
}

// awaitFunction waits until `headstart status` has the function as it should be.
func (j *journey) awaitFunction(name string, ok func(admin.Function) error) {
	j.Helper()
	err := testbed.Poll(j.Context(), settleTimeout, func(ctx context.Context) error {
		var s admin.Status
		if err := j.CLI(ctx, &s, "status"); err != nil {
			return err
		}
		i := slices.IndexFunc(s.Functions, func(f admin.Function) bool { return f.Name == world.Functions+"/"+name })
		if i < 0 {
			return fmt.Errorf("function %s is not known", name)
		}
		return ok(s.Functions[i])
	})
	if err != nil {
		j.Fatal(err)
	}
}

// awaitConnected waits until each node is connected to each control plane: some 40 s after an upgrade,
// since name servers remember the control planes of before for half a minute.
func (j *journey) awaitConnected() {
	j.Helper()
	err := testbed.Poll(j.Context(), settleTimeout, func(ctx context.Context) error {
		var s admin.Status
		if err := j.CLI(ctx, &s, "status"); err != nil {
			return err
		}
		if len(s.Nodes) != len(j.Nodes()) {
			return fmt.Errorf("%d nodes are connected", len(s.Nodes))
		}
		for _, n := range s.Nodes {
			if len(n.Away) > 0 {
				return fmt.Errorf("node %s is not connected to %s", n.Name, strings.Join(n.Away, ", "))
			}
		}
		return nil
	})
	if err != nil {
		j.Fatal(err)
	}
}

func (j *journey) request(function string) (*http.Response, []byte) {
	j.Helper()
	r, err := j.to(j.Context(), function)
	if err != nil {
		j.Fatal(err)
	}
	r.Header.Set("x-bucket", testbed.Bucket)
	r.Header.Set("x-key", j.video.Object)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		j.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		j.Fatal(err)
	}
	return resp, body
}

func (j *journey) to(ctx context.Context, function string) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+j.gateway.String()+"/", nil)
	if err == nil {
		r.Host = world.Function{Name: function}.Host()
	}
	return r, err
}

// traceIsWhole looks for the steps of a cold request in `headstart trace`.
func (j *journey) traceIsWhole(id string) {
	j.Helper()
	err := testbed.Poll(j.Context(), settleTimeout, func(ctx context.Context) error {
		var t trace.Trace
		if err := j.CLI(ctx, &t, "trace", id); err != nil {
			return err
		}
		for _, name := range []string{tracing.Activation, tracing.Placement, tracing.Fetch, tracing.RuntimeStart, tracing.RuncCreate, tracing.Deliver, tracing.Execute} {
			if !slices.ContainsFunc(t.Spans, func(s trace.Span) bool { return s.Name == name }) {
				return fmt.Errorf("the trace has no %s; it has %s", name, spansOf(t))
			}
		}
		return nil
	})
	if err != nil {
		j.Error(err)
	}
}

// spansOf names the spans and where each was made.
func spansOf(t trace.Trace) string {
	var all []string
	for _, s := range t.Spans {
		all = append(
			all,
			fmt.Sprintf(
				"%s of %s on %s at %s", s.Name, s.Service, s.Attributes[string(tracing.Node)],
				s.Start.Format(time.TimeOnly),
			),
		)
	}
	return strings.Join(all, ", ")
}

// underLoad changes something while a hot function is used. Nothing may be lost, and its
// sandboxes go on.
func (j *journey) underLoad(f world.Function, change func()) {
	ctx, name := j.Context(), f.Name
	f.Replicas, f.Annotations = 2, map[string]string{"headstart.dev/scale-to-zero": "1h"}
	if err := j.Deploy(ctx, f); err != nil {
		j.Fatal(err)
	}
	if err := j.Tool(ctx, nil, "kubectl", "-n", world.Functions, "rollout", "status", "deployment", name, "--timeout=60s"); err != nil {
		j.Fatal(err)
	}
	get := func(ctx context.Context) (*http.Request, error) {
		r, err := j.to(ctx, name)
		if err == nil {
			r.Method, r.URL.Path = http.MethodGet, "/healthz"
		}
		return r, err
	}
	// The gateway has to know the function first.
	if err := testbed.Poll(ctx, settleTimeout, func(ctx context.Context) error {
		r, err := get(ctx)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the gateway answers %s", resp.Status)
		}
		return nil
	}); err != nil {
		j.Fatal(err)
	}
	pods := j.pods(name)
	l := load.Start(ctx, load.Config{Request: get, Rate: rate, Timeout: requestTimeout})
	change()
	if got := l.Stop(); got.Lost > 0 || got.Sent == 0 {
		j.Errorf("%d of %d requests are lost: %v", got.Lost, got.Sent, got.Reasons)
	} else {
		j.Logf("%d requests, p99 %v", got.Sent, got.Quantile(0.99))
	}
	if now := j.pods(name); now != pods {
		j.Errorf("the sandboxes were %s, are %s", pods, now)
	}
}

// pods are the names and restarts of a function's pods.
func (j *journey) pods(function string) string {
	j.Helper()
	out, err := j.Output(j.Context(), nil, "kubectl", "-n", world.Functions, "get", "pods", "-l", "app="+function, "--sort-by=.metadata.name",
		"-o", `jsonpath={range .items[*]}{.metadata.name}:{.status.containerStatuses[0].restartCount} {end}`)
	if err != nil {
		j.Fatal(err)
	}
	return out
}

func (j *journey) undeploy(functions ...string) {
	j.Helper()
	for _, f := range functions {
		if err := j.Tool(j.Context(), nil, "kubectl", "-n", world.Functions, "delete", "service,deployment,virtualservice", f, "--timeout=60s"); err != nil {
			j.Fatal(err)
		}
		if err := j.Tool(j.Context(), nil, "kubectl", "-n", world.Functions, "wait", "--for=delete", "pods", "-l", "app="+f, "--timeout=60s"); err != nil {
			j.Fatal(err)
		}
	}
}

func (j *journey) uninstall() {
	if err := j.World.Uninstall(j.Context()); err != nil {
		j.Fatal(err)
	}
}

func (j *journey) nothingIsLeft(before world.Snapshot) {
	residue, err := j.Residue(j.Context(), before)
	if err != nil {
		j.Fatal(err)
	}
	if len(residue) > 0 {
		j.Errorf("%d things are left or lost:\n%s", len(residue), strings.Join(residue, "\n"))
	}
}

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "a cluster needs root")
		os.Exit(1)
	}
	os.Exit(m.Run())
}
