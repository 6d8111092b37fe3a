package ingress_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// seen is what a function saw of a request.
type seen struct {
	body   string
	length int64
	header http.Header
	file   string // content of the file that the request names
}

// see answers 200 and keeps what it sees.
func see(t *testing.T, r **rig, got *seen) http.HandlerFunc {
	return func(_ http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		*got = seen{body: string(body), length: req.ContentLength, header: req.Header.Clone()}
		if name, ok := strings.CutPrefix(req.Header.Get("x-headstart-input-file"), "/headstart/input/"); ok {
			file, err := os.ReadFile(filepath.Join((*r).dir, name))
			if err != nil {
				t.Error(err)
			}
			got.file = string(file)
		}
	}
}

// The input is body and file at once, unless the request has a body of its own.
func TestAFunctionGetsItsInput(t *testing.T) {
	const input = "the stored input"
	for name, c := range map[string]struct {
		function, method string
		body             io.Reader
		object           string // key; none: the request names no input
		edit             func(*http.Request)
		want             string // body
		length           int64
		contentType      string
		file             string
	}{
		"as body":       {function: withInput, method: "POST", object: "some", want: input, length: 16, contentType: "video/x-mjpeg", file: input},
		"as GET's body": {function: withInput, method: "GET", object: "some", want: input, length: 16, contentType: "video/x-mjpeg", file: input},
		"beside an own body": {function: withInput, method: "POST", object: "some", body: strings.NewReader("own"),
			want: "own", length: 3, file: input},
		"beside an own chunked body": {function: withInput, method: "POST", object: "some", body: io.MultiReader(strings.NewReader("own")),
			want: "own", length: -1, file: input},
		"of zero bytes": {function: withInput, method: "POST", object: "none", want: "", length: 0, contentType: "text/plain"},
		"with the client's type": {function: withInput, method: "POST", object: "some", edit: func(r *http.Request) { r.Header.Set("Content-Type", "image/jpeg") },
			want: input, length: 16, contentType: "image/jpeg", file: input},
		"without a type":        {function: withInput, method: "POST", object: "bare", want: input, length: 16, file: input},
		"none named":            {function: withInput, method: "POST", want: ""},
		"not taking one":        {function: withoutInput, method: "POST", object: "some", want: ""},
		"switching protocols":   {function: withInput, method: "GET", object: "some", edit: func(r *http.Request) { r.Header.Set("Connection", "upgrade"); r.Header.Set("Upgrade", "websocket") }, want: "", file: input},
		"the client's own file": {function: withoutInput, method: "POST", edit: func(r *http.Request) { r.Header.Set("x-headstart-input-file", "/etc/passwd") }, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			var got seen
			var r *rig
			r = newRig(t, see(t, &r, &got))
			refs := map[string]string{"some": r.put("some", "video/x-mjpeg", []byte(input)), "none": r.put("none", "text/plain", nil), "bare": r.put("bare", "", []byte(input))}
			id := newID()
			req := request(t, c.method, c.function, id, refs[c.object], c.body)
			if c.edit != nil {
				c.edit(req)
			}
			resp := r.do(t, req)
			if resp.StatusCode != http.StatusOK || resp.Header.Get("x-headstart-request") != id {
				t.Fatalf("%d with %v: %s", resp.StatusCode, resp.Header, read(t, resp.Body))
			}
			if got.body != c.want || got.length != c.length || got.header.Get("Content-Type") != c.contentType || got.file != c.file {
				t.Errorf("the function saw %+v", got)
			}
			wantFile := ""
			if c.object != "" && c.function == withInput {
				wantFile = "/headstart/input/" + id
			}
			for header, want := range map[string]string{"x-headstart-request": id, "x-headstart-input-file": wantFile,
				"x-headstart-input": "", "x-headstart-function": "", "x-headstart-instance": ""} {
				if v := got.header.Get(header); v != want {
					t.Errorf("%s is %q, want %q", header, v, want)
				}
			}
		})
	}
}

// Whatever begins with x-headstart- is between gateway and daemons.
func TestInternalHeadersStayInside(t *testing.T) {
	var got seen
	var r *rig
	r = newRig(t, see(t, &r, &got))
	req := request(t, "POST", withoutInput, newID(), "s3://inputs/some", nil)
	req.Header.Set("x-headstart-instance", "another")
	req.Header.Set("x-headstart-anything", "x")
	req.Header.Set("Connection", "x-headstart-request, traceparent") // ask for their removal
	r.do(t, req)
	for name := range got.header {
		if strings.HasPrefix(name, "X-Headstart-") && name != "X-Headstart-Request" {
			t.Errorf("the function sees %s", name)
		}
	}
	if got.header.Get("x-headstart-request") == "" || got.header.Get("traceparent") == "" {
		t.Errorf("the client could remove what the daemon adds: %v", got.header)
	}
}

// 200 cold requests at once: each function call gets its own input, as body and file.
func TestManyColdRequestsKeepTheirInputsApart(t *testing.T) {
	const requests = 200
	var r *rig
	r = newRig(t, func(w http.ResponseWriter, req *http.Request) {
		body := sha256.New()
		_, err := io.Copy(body, req.Body)
		file, ferr := os.ReadFile(filepath.Join(r.dir, filepath.Base(req.Header.Get("x-headstart-input-file"))))
		if err != nil || ferr != nil {
			t.Error(err, ferr)
		}
		fmt.Fprintf(w, "%x %x", body.Sum(nil), sha256.Sum256(file))
	})
	var g sync.WaitGroup
	for n := range requests {
		input := bytes.Repeat([]byte{byte(n), byte(n >> 8)}, 5000+n)
		ref := r.put(fmt.Sprint("object-", n), "", input)
		req := request(t, "POST", withInput, newID(), ref, nil)
		g.Go(func() {
			resp, err := r.gateway.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if want := fmt.Sprintf("%x %[1]x", sha256.Sum256(input)); err != nil || string(answer) != want {
				t.Errorf("request %d: %d %s, want %s: %v", n, resp.StatusCode, answer, want, err)
			}
		})
	}
	g.Wait()
	eventually(t, "nothing is held", func() bool { return r.cp.holds(withInput) == 0 })
	r.nothingLeft(t)
}
