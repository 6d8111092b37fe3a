//go:build integration

package local

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/testbed"
	"github.com/headstart-mesh/headstart/filters/filterapi"
)

// A run whose node's daemon is killed goes on after its last step, when the request comes again to another node: what counts is in the
// store once.
func TestARunGoesOnOnAnotherNode(t *testing.T) {
	deploy(t, testbed.Function{Name: "resume-slow", Node: testbed.Cloud})
	first, last, reader := stateful("resume-first", "sessions"), stateful("resume-last", "sessions"), stateful("resume-reader", "sessions")
	first.Node, last.Node, reader.Node = testbed.Edge, testbed.Edge, testbed.Edge
	reader.Annotations = nil
	for _, f := range []testbed.Function{first, last, reader} {
		deploy(t, f)
	}
	deployWorkflowWith(t, "resume", filterapi.AnnotationState+": sessions", `  - first: { call: http, with: { method: post, endpoint: 'http://resume-first.default/redis?q=INCR+resume:first' } }
  - slow: { call: http, with: { method: post, endpoint: 'http://resume-slow.default/say?ms=3000', body: '${ . }' } }
  - last: { call: http, with: { method: post, endpoint: 'http://resume-last.default/redis?q=INCR+resume:last' } }
`)
	mustQuery(t, "resume-reader", "/redis", "MSET resume:first 0 resume:last 0")
	run := func(ctx context.Context, node, key, body string) (answer, error) {
		return call{node: node, function: "resume", header: map[string]string{"Idempotency-Key": key}, body: strings.NewReader(body)}.do(ctx)
	}
	counts := func() string { return mustQuery(t, "resume-reader", "/redis", "MGET resume:first resume:last") }
	for n := 1; n <= 2; n++ { // the second run has what is guessed
		key := fmt.Sprint("run ", n)
		lost := make(chan error, 1)
		go func() {
			a, err := run(t.Context(), testbed.Edge, key, `{"n":1}`)
			if err == nil && a.status == http.StatusOK {
				err = fmt.Errorf("the run is not lost: %s", a.body)
			} else {
				err = nil
			}
			lost <- err
		}()
		record := fmt.Sprintf("headstart:run:default/resume:%x", sha256.Sum256([]byte(key)))
		eventually(t, "the first step counts", func() error {
			if got := mustQuery(t, "resume-reader", "/redis", "HEXISTS "+record+" call:1"); got != "1" {
				return fmt.Errorf("the record has it: %s", got)
			}
			return nil
		})
		killDaemon(t, testbed.Edge)
		if err := <-lost; err != nil {
			t.Fatal(err)
		}
		var whole string
		eventually(t, "another node goes on", func() error {
			a, err := run(t.Context(), testbed.Cloud, key, `{"n":1}`)
			if whole = string(a.body); err != nil || a.status != http.StatusOK {
				return errors.Join(err, fmt.Errorf("%d %s", a.status, a.body))
			}
			return nil
		})
		if got, want := counts(), fmt.Sprintf("[%d %d]", n, n); got != want {
			t.Errorf("the store has %s, want %s", got, want)
		}
		a, err := run(t.Context(), testbed.Edge, key, `{"n":1}`)
		if err != nil || a.status != http.StatusOK || string(a.body) != whole {
			t.Errorf("once more: %d %s, %v, want %s", a.status, a.body, err, whole)
		}
		if a, err := run(t.Context(), testbed.Edge, key, `{"n":2}`); err != nil || a.status != http.StatusUnprocessableEntity {
			t.Errorf("with another body: %d %s, %v", a.status, a.body, err)
		}
		if got, want := counts(), fmt.Sprintf("[%d %d]", n, n); got != want {
			t.Errorf("in the end the store has %s, want %s", got, want)
		}
	}
}

// What runs have taught outlives the daemon: the next one guesses for requests that it has not seen.
func TestWhatRunsHaveTaughtIsKept(t *testing.T) {
	deploy(t, speculative("taught-first"))
	deploy(t, speculative("taught-next"))
	deploy(t, stateful("taught-reader", "sessions"))
	deployWorkflowWith(t, "taught", filterapi.AnnotationState+": sessions", `  - first: { call: http, with: { method: post, endpoint: 'http://taught-first.default/say?ms=100', body: '${ . }' } }
  - next: { call: http, with: { method: post, endpoint: 'http://taught-next.default/say?ms=100', body: '${ . }' } }
`)
	run := func(n int) step {
		t.Helper()
		a, err := call{function: "taught", body: strings.NewReader(fmt.Sprintf(`{"n":%d}`, n))}.do(t.Context())
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %s, %v", a.status, a.body, err)
		}
		return stepsOf(t, a.header.Get(filterapi.HeaderRequest), 2)["next"]
	}
	const inputs = 10
	for n := range inputs {
		if s := run(n); s.ahead {
			t.Errorf("request %d was new, and a function worked ahead of it", n)
		}
	}
	streams := strings.Fields(strings.Trim(mustQuery(t, "taught-reader", "/redis", "KEYS headstart:learned:default/taught:*"), "[]"))
	if len(streams) != 1 {
		t.Fatalf("streams %q", streams)
	}
	eventually(t, "it is told", func() error {
		if told := mustQuery(t, "taught-reader", "/redis", "XREAD COUNT 99 STREAMS "+streams[0]+" 0"); !strings.Contains(told, "taught-next") {
			return fmt.Errorf("the stream has %.300s", told)
		}
		return nil
	})
	killDaemon(t, testbed.Edge)
	eventually(t, "the node is back", func() error { return joined(t.Context(), testbed.Edge) })
	ahead := false
	for n := 0; n < inputs && !ahead; n++ { // the first ones may begin before the daemon has heard of anything
		ahead = run(n).ahead
	}
	if !ahead {
		t.Error("the next daemon guesses nothing")
	}
}
