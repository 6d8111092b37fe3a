package input

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const limit = 100

// fakeStore has one object, bucket/key.
type fakeStore struct{ content string }

func (s fakeStore) Get(_ context.Context, bucket, key string, _ int64) ([]byte, error) {
	if bucket != "bucket" || key != "key" {
		return nil, refuse(http.StatusNotFound, "no such object")
	}
	return []byte(s.content), nil
}

func newReader(t *testing.T) *Reader {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "input")
	for name, content := range map[string]string{
		"input/request": "from the file", "input/large": strings.Repeat("x", limit+1), "input/empty": "", "memory/request": "from the memory", "secret": "secret",
	} {
		path := filepath.Join(filepath.Dir(dir), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"link": "../secret", "in-memory": "../memory/request"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return &Reader{Dir: dir, Limit: limit, Objects: func() (Objects, error) { return fakeStore{"from the store"}, nil }}
}

// request has a body and headers; DIR in a header stands for the reader's directory.
func request(r *Reader, body io.Reader, headers map[string]string) *http.Request {
	req := httptest.NewRequest(http.MethodPost, "/", body)
	for name, value := range headers {
		req.Header.Set(name, strings.ReplaceAll(value, "DIR", r.Dir))
	}
	return req
}

// streamed hides a body's length, as chunked transfer coding does.
func streamed(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }

var stored = map[string]string{HeaderBucket: "bucket", HeaderKey: "key"}

func with(headers map[string]string, name, value string) map[string]string {
	all := map[string]string{name: value}
	for n, v := range headers {
		all[n] = v
	}
	return all
}

func TestReadTakesTheFirstInput(t *testing.T) {
	for _, c := range []struct {
		name    string
		body    io.Reader
		headers map[string]string
		want    string
		origin  Origin
	}{
		{"body", strings.NewReader("from the body"), nil, "from the body", Body},
		{"streamed body", streamed("from the body"), nil, "from the body", Body},
		{"body before all", strings.NewReader("from the body"), with(stored, HeaderFile, "DIR/request"), "from the body", Body},
		{"file before store", nil, with(stored, HeaderFile, "DIR/request"), "from the file", File},
		{"file after an empty stream", streamed(""), with(stored, HeaderFile, "DIR/request"), "from the file", File},
		{"words beside a file", strings.NewReader("{}"), with(with(stored, HeaderFile, "DIR/request"), "Content-Type", Words), "from the file", File},
		{"words beside what is in a store", strings.NewReader("{}"), with(stored, "Content-Type", Words), "from the store", Store},
		{"file in the node's memory", nil, with(stored, HeaderFile, "DIR/in-memory"), "from the memory", File},
		{"an empty file is a file", nil, with(stored, HeaderFile, "DIR/empty"), "", File},
		{"store", nil, stored, "from the store", Store},
		{"store for a file that is not there", nil, with(stored, HeaderFile, "DIR/other"), "from the store", Store},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReader(t)
			in, err := r.Read(request(r, c.body, c.headers))
			if err != nil {
				t.Fatal(err)
			}
			if string(in.Data) != c.want || in.From != c.origin {
				t.Errorf("%q by %s, want %q by %s", in.Data, in.From, c.want, c.origin)
			}
			if err := in.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name    string
		body    io.Reader
		headers map[string]string
		status  int
	}{
		{"no input", nil, nil, http.StatusBadRequest},
		{"bucket alone", nil, map[string]string{HeaderBucket: "bucket"}, http.StatusBadRequest},
		{"large body", strings.NewReader(strings.Repeat("x", limit+1)), nil, http.StatusRequestEntityTooLarge},
		{"large stream", streamed(strings.Repeat("x", limit+1)), nil, http.StatusRequestEntityTooLarge},
		{"large file", nil, map[string]string{HeaderFile: "DIR/large"}, http.StatusRequestEntityTooLarge},
		{"file elsewhere", nil, map[string]string{HeaderFile: "/etc/passwd"}, http.StatusBadRequest},
		{"file above", nil, map[string]string{HeaderFile: "DIR/../secret"}, http.StatusBadRequest},
		{"relative file", nil, map[string]string{HeaderFile: "request"}, http.StatusBadRequest},
		{"the directory", nil, map[string]string{HeaderFile: "DIR"}, http.StatusBadRequest},
		{"no such object", nil, map[string]string{HeaderBucket: "bucket", HeaderKey: "other"}, http.StatusNotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReader(t)
			in, err := r.Read(request(r, c.body, c.headers))
			if refusal := new(Refusal); !errors.As(err, &refusal) || refusal.Status != c.status {
				t.Errorf("%v and error %v, want status %d", in, err, c.status)
			}
		})
	}
}

func TestReadDoesNotFollowLinksOut(t *testing.T) {
	r := newReader(t)
	in, err := r.Read(request(r, nil, map[string]string{HeaderFile: "DIR/link"}))
	if err == nil {
		t.Errorf("read %q through a link", in.Data)
	}
}

func TestReadNeedsTheWholeBody(t *testing.T) {
	r := newReader(t)
	req := request(r, bytes.NewReader([]byte("half")), nil)
	req.ContentLength = 8
	if in, err := r.Read(req); err == nil {
		t.Errorf("took %q for 8 bytes", in.Data)
	}
}

func TestReadWithoutStore(t *testing.T) {
	r := newReader(t)
	unset := errors.New("not configured")
	r.Objects = func() (Objects, error) { return nil, unset }
	if _, err := r.Read(request(r, nil, stored)); !errors.Is(err, unset) {
		t.Errorf("error %v, want %v", err, unset)
	}
}
