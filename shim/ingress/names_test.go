package ingress_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/tracing"
	"github.com/headstart-mesh/headstart/shim/objects"
)

// masked has the function take two inputs with names as well.
func masked(f *nodeapi.Function) {
	f.InputTemplate = "s3://inputs/{header.x-key}"
	f.InputTemplates = map[string]string{
		"mask": "s3://inputs/{header.x-mask}", "subtitles": "s3://inputs/{header.x-subtitles}",
	}
}

// reader answers with the request's body, the content of its file, and those of its named inputs.
func reader(t *testing.T, r **rig) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		all := []string{string(body)}
		if req.Header.Get("x-headstart-input-file") != "" {
			all = append(all, "file")
		}
		for _, name := range []string{"mask", "subtitles"} {
			content, err := os.ReadFile(filepath.Join((*r).named, name, req.Header.Get("x-headstart-request")))
			if err == nil {
				all = append(all, name+"="+string(content))
			}
		}
		_, _ = io.WriteString(w, strings.Join(all, " "))
	}
}

// A request waits for all inputs that it names, whether the filter or the daemon has named them, and the function has each as
// a file. A named one is never the body.
func TestAFunctionGetsItsNamedInputs(t *testing.T) {
	for name, c := range map[string]struct {
		header   map[string]string
		id       bool // the filter has seen the request
		body     string
		want     string
		degraded string
	}{
		"all, by the filter": {header: map[string]string{"x-headstart-input": "s3://inputs/video",
			"x-headstart-inputs": "mask=s3://inputs/m%20ask&subtitles=s3://inputs/subtitles"}, id: true, want: "video file mask=mask subtitles=subtitles"},
		"one, by the filter":  {header: map[string]string{"x-headstart-inputs": "mask=s3://inputs/m%20ask"}, id: true, want: " mask=mask"},
		"beside a body":       {header: map[string]string{"x-headstart-inputs": "mask=s3://inputs/m%20ask"}, id: true, body: "own", want: "own mask=mask"},
		"all, by the daemon":  {header: map[string]string{"x-key": "video", "x-mask": "m ask", "x-subtitles": "subtitles"}, want: "video file mask=mask subtitles=subtitles", degraded: "NoInputHint"},
		"one, by the daemon":  {header: map[string]string{"x-subtitles": "subtitles"}, want: " subtitles=subtitles", degraded: "NoInputHint"},
		"none":                {want: "", degraded: "NoInputReference"},
		"none, by the filter": {id: true, want: ""},
		"by a filter that knows no names": {header: map[string]string{"x-headstart-input": "s3://inputs/video", "x-mask": "m ask"}, id: true,
			want: "video file mask=mask", degraded: "NoInputHint"},
		"another one than it takes": {header: map[string]string{"x-headstart-inputs": "other=s3://inputs/video"}, id: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			var r *rig
			r = newRig(t, reader(t, &r))
			r.change(masked)
			for _, key := range []string{"video", "m ask", "subtitles"} {
				r.put(key, "", []byte(strings.ReplaceAll(key, " ", "")))
			}
			id, trace := "", newID()
			if c.id {
				id = newID()
			}
			var body io.Reader
			if c.body != "" {
				body = strings.NewReader(c.body)
			}
			req := request(t, http.MethodPost, withInput, id, "", body)
			req.Header.Set("traceparent", "00-"+trace+"-"+clientSpan+"-01")
			for header, value := range c.header {
				req.Header.Set(header, value)
			}
			resp := r.do(t, req)
			if got := read(t, resp.Body); resp.StatusCode != http.StatusOK || got != c.want {
				t.Errorf("%d %q, want %q", resp.StatusCode, got, c.want)
			}
			waitTrace(t, trace, 1)
			if got := attributes(named(t, trace, tracing.Activation, 0))[tracing.Degraded]; got != c.degraded {
				t.Errorf("it is degraded by %q", got)
			}
			for _, span := range []string{tracing.Fetch, tracing.Transfer} {
				var names []string
				for _, s := range spansOf(trace) {
					if s.Name() == span {
						names = append(names, attributes(s)[tracing.InputName])
					}
				}
				if want := len(strings.Fields(c.want)) - strings.Count(c.want, "file") - strings.Count(c.body, "own"); len(names) != want ||
					strings.Contains(c.want, "mask") != slices.Contains(names, "mask") {
					t.Errorf("%s of %q", span, names)
				}
			}
		})
	}
}

// What is wrong with any of a request's inputs fails it, and the problem names that one.
func TestANamedInputThatCannotBeHad(t *testing.T) {
	for name, c := range map[string]struct {
		inputs string
		change func(*rig)
		status int
		title  string
		field  string
	}{
		"missing":        {"mask=s3://inputs/none", nil, 404, "InputNotFound", "headstart.dev/input.mask"},
		"too large":      {"mask=s3://inputs/video", func(r *rig) { r.change(func(f *nodeapi.Function) { masked(f); f.InputLimit = 1 }) }, 413, "InputTooLarge", "headstart.dev/input-limit"},
		"not placed yet": {"mask=s3://inputs/none", func(r *rig) { r.cp.activate = neverPlaced }, 404, "InputNotFound", "headstart.dev/input.mask"},
		"malformed":      {"mask=/etc/passwd", nil, 400, "InputReferenceMalformed", "header x-headstart-inputs"},
		"no name":        {"../mask=s3://inputs/video", nil, 400, "InputReferenceMalformed", "header x-headstart-inputs"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(http.ResponseWriter, *http.Request) { t.Error("it runs") })
			r.change(masked)
			if c.change != nil {
				c.change(r)
			}
			ref := r.put("video", "", []byte("video"))
			req := request(t, http.MethodPost, withInput, newID(), ref, nil)
			req.Header.Set("x-headstart-inputs", c.inputs)
			if name == "too large" {
				req.Header.Del("x-headstart-input")
			}
			wantProblem(t, r.do(t, req), c.status, c.title, c.field)
		})
	}
}

// A sandbox from before there were named inputs gets the request without, and the trace says so.
func TestNamedInputsNeedADirectory(t *testing.T) {
	var r *rig
	r = newRig(t, reader(t, &r))
	r.change(masked)
	r.instances.inputs.Named = nil
	r.put("mask", "", []byte("mask"))
	id, ref := newID(), r.put("video", "", []byte("video"))
	req := request(t, http.MethodPost, withInput, id, ref, nil)
	req.Header.Set("x-headstart-inputs", "mask=s3://inputs/mask")
	if got := read(t, r.do(t, req).Body); got != "video file" {
		t.Errorf("it saw %q", got)
	}
	waitTrace(t, id, 1)
	if got := attributes(named(t, id, tracing.Activation, 0))[tracing.Degraded]; got != "NoInputFile" {
		t.Errorf("it is degraded by %q", got)
	}
}

// The node of the instance fetches all inputs; the control plane announces them there.
func TestNamedInputsAreHandedOver(t *testing.T) {
	var p *pair
	p = newPair(t, func(w http.ResponseWriter, req *http.Request) { reader(t, &p.target)(w, req) })
	p.gateway.change(masked)
	p.target.change(masked)
	p.gateway.store.Before = stall
	p.gateway.put("mask", "", []byte("far"))
	p.gateway.put("video", "", []byte("far"))
	p.target.put("mask", "", []byte("near"))
	ref, id := p.target.put("video", "", []byte("video")), newID()
	bind := p.gateway.cp.activate
	p.gateway.cp.activate = func(ctx context.Context, a *nodeapi.Activate) (*nodeapi.Bound, error) {
		if want := map[string]string{
			"mask": "s3://inputs/mask",
		}; a.GetInput() != ref || !maps.Equal(a.GetInputs(), want) {
			t.Errorf("asked with %v", a)
		}
		p.target.Expect(&nodeapi.Expect{
			Request: id, Function: withInput, Instance: target, Input: a.GetInput(), Inputs: a.GetInputs(),
		})
		for range 2 {
			if o := <-p.target.outcomes; o.Reason != "" || o.Bytes == 0 {
				t.Errorf("fetched with %+v", o)
			}
		}
		return bind(ctx, a)
	}
	fetches := p.target.countFetches()
	req := request(t, http.MethodPost, withInput, id, ref, nil)
	req.Header.Set("x-headstart-inputs", "mask=s3://inputs/mask")
	req.Header.Set("Connection", "x-headstart-inputs") // of no avail
	hinted := hint(withInput, id, ref)
	hinted.Header.Set("x-headstart-inputs", "mask=s3://inputs/mask")
	if resp := call(p.gateway.Hints(), hinted); resp.StatusCode != http.StatusAccepted {
		t.Errorf("the hint is answered with %d", resp.StatusCode)
	}
	if got := read(t, p.gateway.do(t, req).Body); got != "video file mask=near" || fetches.Load() != 2 {
		t.Errorf("it saw %q after %d fetches", got, fetches.Load())
	}
	for range 2 {
		if o := <-p.gateway.outcomes; o != (objects.Outcome{
			Function: withInput, Store: "edge", Reason: "InputCancelled", Way: o.Way, Began: o.Began, Ended: o.Ended,
		}) {
			t.Errorf("the gateway's own fetch ended with %+v", o)
		}
	}
}

// A hint of a function without named inputs names none.
func TestAHintOfANamedInputThatIsNotTaken(t *testing.T) {
	r := newNode(t, nil)
	req := hint(withInput, newID(), "")
	req.Header.Set("x-headstart-inputs", "mask=s3://inputs/a")
	wantProblem(t, call(r.Hints(), req), http.StatusBadRequest, "HintMalformed", "")
	req.Header.Set("x-headstart-inputs", "mask")
	wantProblem(t, call(r.Hints(), req), http.StatusBadRequest, "InputReferenceMalformed", "header x-headstart-inputs")
}
