package ingress_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
)

// Whatever the gateway has loaded, no function runs without the input that its request names: the
// daemon names it where no filter has.
func TestTheDaemonNamesTheInput(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) })
	r.change(func(f *nodeapi.Function) { f.InputTemplate = "s3://{header.x-bucket}/{header.x-key}" })
	r.put("some", "", []byte("an input"))
	for name, c := range map[string]struct {
		header   http.Header
		status   int
		body     string // of an answer, and else the field of the problem
		degraded string
	}{
		"named":        {http.Header{"X-Bucket": {"inputs"}, "X-Key": {"some"}}, http.StatusOK, "an input", "NoInputHint"},
		"not named":    {nil, http.StatusOK, "", "NoInputReference"},
		"not there":    {http.Header{"X-Bucket": {"inputs"}, "X-Key": {"other"}}, http.StatusNotFound, "headstart.dev/input", "NoInputHint"},
		"half named":   {http.Header{"X-Key": {"some"}}, http.StatusBadRequest, "header x-bucket", ""},
		"given twice":  {http.Header{"X-Bucket": {"inputs"}, "X-Key": {"some", "some"}}, http.StatusBadRequest, "header x-key", ""},
		"out of place": {http.Header{"X-Bucket": {"inputs"}, "X-Key": {"../some"}}, http.StatusBadRequest, "header x-key", ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := request(t, http.MethodGet, withInput, "", "", nil)
			for k, v := range c.header {
				req.Header[k] = v
			}
			trace := newID()
			req.Header.Set("traceparent", "00-"+trace+"-"+clientSpan+"-01")
			resp := r.do(t, req)
			if c.status == http.StatusOK {
				if got := read(t, resp.Body); resp.StatusCode != c.status || got != c.body {
					t.Errorf("%d %q", resp.StatusCode, got)
				}
			} else {
				title := map[int]string{http.StatusNotFound: "InputNotFound", http.StatusBadRequest: "InputReferenceMalformed"}[c.status]
				wantProblem(t, resp, c.status, title, c.body)
			}
			waitTrace(t, trace, 1)
			if got := attributes(named(t, trace, tracing.Activation, 0))[tracing.Degraded]; got != c.degraded {
				t.Errorf("it is degraded by %q", got)
			}
		})
	}
}

// The path and the query that count are those that came, nothing of them decoded twice.
func TestTheDaemonNamesTheInputByThePath(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) { _, _ = io.Copy(w, req.Body) })
	r.change(func(f *nodeapi.Function) {
		f.InputTemplate = "/objects/{+key} s3://{query.bucket}/{path.key|urldecode}"
	})
	r.put("a b/%2e", "", []byte("an input"))
	for target, field := range map[string]string{
		"/objects/a%20b/%252e?bucket=inputs":           "",
		"/objects/a%20b/%2e%2e/some?bucket=inputs":     "path",
		"/objects/a%20b/%252e":                         "query bucket",
		"/objects/a%20b/%252e?bucket=in&bucket=inputs": "query bucket",
		"/other?bucket=inputs":                         "path",
	} {
		req := request(t, http.MethodGet, withInput, "", "", nil)
		u, err := req.URL.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		req.URL = u
		resp := r.do(t, req)
		if field != "" {
			wantProblem(t, resp, http.StatusBadRequest, "InputReferenceMalformed", field)
		} else if got := read(t, resp.Body); resp.StatusCode != http.StatusOK || got != "an input" {
			t.Errorf("%s: %d %q", target, resp.StatusCode, got)
		}
	}
}

// A template that only a newer daemon knows is refused, and not taken for none.
func TestATemplateOfANewerKind(t *testing.T) {
	r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("it runs") })
	r.change(func(f *nodeapi.Function) { f.InputTemplate = "gs://videos/{header.x-key}" })
	req := request(t, http.MethodGet, withInput, "", "", nil)
	wantProblem(t, r.do(t, req), http.StatusBadGateway, "InputReferenceMalformed", "headstart.dev/input")
}
