//go:build integration

package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
)

// Each of these gets an answer that names function and field, within a bounded time;
// the operator sees it in the status; and nothing of it stays.
func TestWhatGoesWrongIsSaid(t *testing.T) {
	put(t, "wrong/there", 1000)
	put(t, "wrong/huge", bufferLimit+1)
	put(t, "wrong/over", 2000)
	for name, c := range map[string]struct {
		function testbed.Function
		header   map[string]string
		status   int
		title    string
		field    string
	}{
		"missing-object": {testbed.Function{Annotations: withInput()}, forInput("wrong/missing"),
			http.StatusNotFound, "InputNotFound", "headstart.dev/input"},
		"other-bucket": {testbed.Function{Annotations: withInput()}, map[string]string{"x-bucket": "payroll", "x-key": "wrong/there"},
			http.StatusForbidden, "StoreNotAllowed", "headstart.dev/input"},
		"wrong-credentials": {testbed.Function{Annotations: withInput("headstart.dev/store", testbed.StaleStore)}, forInput("wrong/there"),
			http.StatusBadGateway, "StoreForbidden", "headstart.dev/store"},
		"header-missing": {testbed.Function{Annotations: withInput()}, map[string]string{"x-bucket": testbed.Bucket},
			http.StatusBadRequest, "InputReferenceMalformed", "x-key"},
		"path-escape": {testbed.Function{Annotations: withInput()}, forInput("../../etc/shadow"),
			http.StatusBadRequest, "InputReferenceMalformed", "x-key"},
		"buffer-too-small": {testbed.Function{Annotations: withInput()}, forInput("wrong/huge"),
			http.StatusInsufficientStorage, "BufferTooSmall", ""},
		"over-limit": {testbed.Function{Annotations: withInput("headstart.dev/input-limit", "1Ki")}, forInput("wrong/over"),
			http.StatusRequestEntityTooLarge, "InputTooLarge", "headstart.dev/input-limit"},
		"never-ready": {testbed.Function{Annotations: map[string]string{"headstart.dev/ready-timeout": "2s"}, Env: map[string]string{"WITNESS_MUTE": "1"}}, nil,
			http.StatusGatewayTimeout, "ReadyTimeout", "headstart.dev/ready-timeout"},
		"exits": {testbed.Function{Env: map[string]string{"WITNESS_EXIT": "3"}}, nil,
			http.StatusBadGateway, "FunctionExited", "spec.template.spec.containers[0]"},
		"no-image": {testbed.Function{Image: "127.0.0.1:1/none:1"}, nil,
			http.StatusBadGateway, "ImageUnavailable", "spec.template.spec.containers[0].image"},
		"no-node": {testbed.Function{Node: "moon"}, nil,
			http.StatusServiceUnavailable, "NodeUnavailable", "spec.template.spec.nodeSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			c.function.Name = "wrong-" + name
			deploy(t, c.function)
			a := call{function: c.function.Name, header: c.header}.must(t)
			p := a.problem
			if a.status != c.status || p.Status != c.status || p.Title != c.title || !strings.Contains(p.Field, c.field) {
				t.Errorf("got %d %s, field %q: %s; want %d %s, field %q", a.status, p.Title, p.Field, a.body, c.status, c.title, c.field)
			}
			if p.Function != "default/"+c.function.Name || p.Detail == "" || !strings.HasSuffix(p.Type, "#"+c.title) {
				t.Errorf("the problem is not complete: %s", a.body)
			}
			if strings.Contains(string(a.body), bed.StateDir(testbed.Edge)) {
				t.Errorf("the answer tells a path of the node: %s", a.body)
			}
			eventually(t, "event "+c.title, func() error {
				for _, e := range function(t, c.function.Name).Events {
					if e.Reason == c.title && e.Message != "" && e.Count == 1 {
						return nil
					}
				}
				return fmt.Errorf("events are %+v", function(t, c.function.Name).Events)
			})
		})
	}
	nothingHalfMade(t)
}

func TestManifestsAreRefusedByName(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		want        []string
	}{
		"unknown key": {map[string]string{"headstart.dev/imput": testbed.Input}, []string{"default/refused", "headstart.dev/imput", `headstart.dev/input`}},
		"malformed":   {map[string]string{"headstart.dev/input": "s3://{header.x-bucket"}, []string{"headstart.dev/input"}},
		"unknown store": {withInput("headstart.dev/store", "elsewhere"),
			[]string{"headstart.dev/store", "elsewhere", testbed.Store}},
		"static bucket": {withInput("headstart.dev/input", "s3://payroll/{header.x-key}"), []string{"headstart.dev/input", "payroll"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := bed.Apply(t.Context(), testbed.Function{Name: "refused", Image: testbed.Witness, Annotations: c.annotations})
			if err == nil {
				t.Fatal("it was deployed")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %s: %v", want, err)
				}
			}
		})
	}
	if a := (call{function: "refused"}).must(t); a.status != http.StatusNotFound || a.problem.Title != "NoSuchFunction" {
		t.Errorf("a refused function answers: %d %s", a.status, a.body)
	}
}

func TestAClientThatLeavesIsForgotten(t *testing.T) {
	deploy(t, testbed.Function{Name: "left", Annotations: withInput("headstart.dev/ready-timeout", "3s"), Env: map[string]string{"WITNESS_MUTE": "1"}})
	put(t, "left/one", 10_000_000)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() {
		_, err := call{function: "left", header: forInput("left/one")}.do(ctx)
		answered <- err
	}()
	eventually(t, "the request is parked", func() error {
		if len(function(t, "left").Instances) == 0 {
			return errors.New("no instance is being made")
		}
		return nil
	})
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	nothingHalfMade(t)
}

func TestAnIdleFunctionGoesBackToZero(t *testing.T) {
	deploy(t, testbed.Function{Name: "idles", Annotations: withInput("headstart.dev/scale-to-zero", "1s")})
	first := call{function: "idles"}.ok(t).report.Instance()
	// A request in hand keeps it, however long the idle window has passed.
	slow := call{function: "idles", path: "/sleep?ms=3000"}.ok(t)
	if slow.report.Instance() != first {
		t.Errorf("the function was stopped under a request")
	}
	eventually(t, "scale to zero", func() error {
		if in := function(t, "idles").Instances; len(in) > 0 {
			return fmt.Errorf("instance %+v", in[0])
		}
		return nil
	})
	nothingHalfMade(t)
	if again := (call{function: "idles"}).ok(t); again.header.Get("x-headstart-request") == "" {
		t.Error("the request after was not cold")
	}
}

func TestAChangedFunctionIsReplacedUnderItsRequests(t *testing.T) {
	f := testbed.Function{Name: "changes", Image: testbed.Witness, Annotations: withInput()}
	deploy(t, f)
	first := call{function: "changes"}.ok(t).report.Instance()
	type result struct {
		a   answer
		err error
	}
	slow := make(chan result, 1)
	go func() {
		a, err := call{function: "changes", path: "/sleep?ms=4000"}.do(context.Background())
		slow <- result{a, err}
	}()
	f.Env = map[string]string{"VERSION": "2"}
	if err := bed.Apply(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if second := (call{function: "changes"}).ok(t).report.Instance(); second == first {
		t.Error("the request after the change went to the old instance")
	}
	if r := <-slow; r.err != nil || r.a.status != http.StatusOK {
		t.Errorf("the request under way: %v, %d %s", r.err, r.a.status, r.a.body)
	}
}

// It comes after the failures, whose answers, events, spans and logs are looked at too.
func TestNoSecretIsTold(t *testing.T) {
	deploy(t, testbed.Function{Name: "secrets", Annotations: withInput()})
	deploy(t, testbed.Function{Name: "stale", Annotations: withInput("headstart.dev/store", testbed.StaleStore)})
	put(t, "secrets/one", 1000)
	told := map[string]string{}
	for _, name := range []string{"secrets", "stale"} {
		a := call{function: name, header: forInput("secrets/one")}.must(t)
		told["trace of "+name] = fmt.Sprintf("%+v", spansOf(t, a.header.Get("x-headstart-request")))
		if a.status != http.StatusOK { // else it is the witness, who tells its environment
			told["answer of "+name] = string(a.body)
		}
	}
	status, err := bed.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told["status"] = fmt.Sprintf("%+v", status)
	logs, err := filepath.Glob(filepath.Join(bed.LogDir(), "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, l := range logs {
		b, err := os.ReadFile(l)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(l) != "s3.log" { // the server's own
			told[filepath.Base(l)] = string(b)
		}
	}
	for what, text := range told {
		for _, secret := range []string{bed.S3.Secret.Key, bed.S3.Secret.Access, testbed.StaleSecret.Key, testbed.StaleSecret.Access} {
			if strings.Contains(text, secret) {
				t.Errorf("%s tells a credential", what)
			}
		}
		if strings.HasPrefix(what, "trace") && strings.Contains(text, "secrets/one") {
			t.Errorf("%s tells the object's key", what)
		}
	}
}
