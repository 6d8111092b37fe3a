package s3proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects"
)

// part is a part with so many bytes in the buffer.
func (n *node) part(t *testing.T, tag string, size int64) part {
	t.Helper()
	d, err := n.cache.Deposit(t.Context(), objects.Request{ID: "part:" + requestID(), Function: testFunction,
		Store: testStore, Reference: "s3://data/k", Limit: limit}, size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt(make([]byte, size), 0); err != nil {
		t.Fatal(err)
	}
	return part{tag, size, d}
}

func uploadOf(sandbox string, id int) uploadKey {
	return uploadKey{sandbox: sandbox, bucket: "data", key: "k", id: fmt.Sprint(id)}
}

// The node follows so many uploads of a sandbox, whatever other sandboxes do, and parts of those that it follows.
func TestUploadsAreBounded(t *testing.T) {
	n := start(t, nil)
	u := &n.uploads
	for id := range uploadsMost {
		if !u.add(uploadOf("a", id), 1, n.part(t, "x", 1)) {
			t.Fatalf("upload %d is not followed", id)
		}
	}
	more := n.part(t, "x", 1)
	if u.add(uploadOf("a", uploadsMost), 1, more) {
		t.Error("more uploads are followed")
	}
	more.content.Abort()
	if !u.add(uploadOf("a", 0), 2, n.part(t, "x", 1)) || !u.add(uploadOf("b", 0), 1, n.part(t, "x", 1)) {
		t.Error("a further part, or another sandbox's upload, is not followed")
	}
	u.forget(uploadOf("a", 5))
	if !u.add(uploadOf("a", uploadsMost), 1, n.part(t, "x", 1)) {
		t.Error("in place of one that is over none is followed")
	}
	if used := n.buffer.Used(); used != uploadsMost+2 {
		t.Errorf("the buffer has %d bytes", used)
	}
	n.Release("a")
	if u.take(uploadOf("a", 0)) != nil || n.buffer.Used() != 1 {
		t.Errorf("of a sandbox that is no more the buffer has %d bytes", n.buffer.Used())
	}
	n.Server.Close()
	if n.buffer.Used() != 0 {
		t.Errorf("after the end the buffer has %d bytes", n.buffer.Used())
	}
}

// A part that is sent again replaces the one before. Uploads that are forgotten, or taken out, are not there.
func TestUploadsHaveEachPartOnce(t *testing.T) {
	n := start(t, nil)
	u, k := &n.uploads, uploadOf("a", 1)
	if u.take(k) != nil {
		t.Error("there is one from the start")
	}
	u.forget(k)
	u.add(k, 1, n.part(t, "first", 100))
	u.add(k, 2, n.part(t, "other", 10))
	u.add(k, 1, n.part(t, "second", 1))
	if n.buffer.Used() != 11 {
		t.Errorf("the buffer has %d bytes", n.buffer.Used())
	}
	up := u.take(k)
	if up == nil || len(up.parts) != 2 || up.parts[1].tag != "second" || up.parts[2].tag != "other" {
		t.Fatalf("it is %+v", up)
	}
	if u.take(k) != nil {
		t.Error("it is there again")
	}
	up.abort()
	u.add(k, 1, n.part(t, "x", 1))
	u.forget(k)
	if n.buffer.Used() != 0 || u.take(k) != nil {
		t.Errorf("the buffer has %d bytes", n.buffer.Used())
	}
}

// An upload to which nothing comes is given up, when something comes to another one.
func TestUploadsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		u := &n.uploads
		old, busy := uploadOf("a", 1), uploadOf("a", 2)
		u.add(old, 1, n.part(t, "x", 1))
		u.add(busy, 1, n.part(t, "x", 1))
		for range 2 {
			time.Sleep(uploadAge - time.Minute)
			u.add(busy, 1, n.part(t, "x", 1))
		}
		if u.take(old) != nil {
			t.Error("it is there still")
		}
		up := u.take(busy)
		if up == nil {
			t.Error("one to which parts come is not")
		}
		up.abort()
		if n.buffer.Used() != 0 {
			t.Errorf("the buffer has %d bytes", n.buffer.Used())
		}
	})
}

// multipart is a store that takes uploads in parts, and its answer to their end.
func multipart(n *node, end func() (int, string)) {
	n.store.before = func(r *http.Request) (*http.Response, error) {
		answer := func(status int, body, tag string) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Etag": {tag}},
				Body: io.NopCloser(strings.NewReader(body))}, nil
		}
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil:
			return nil, err
		case r.Method == http.MethodHead:
			return nil, errors.New("it is away")
		case r.URL.Query().Has("partNumber"):
			return answer(http.StatusOK, "", tagOf(body))
		case r.Method == http.MethodPost:
			status, said := end()
			return answer(status, said, "")
		}
		return nil, nil
	}
}

const completed = `<?xml version="1.0" encoding="UTF-8"?>
<CompleteMultipartUploadResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` +
	`<Location>http://store.test/data/k</Location><Bucket>data</Bucket><Key>k</Key>` +
	`<ETag>&quot;whole-2&quot;</ETag></CompleteMultipartUploadResult>`

// What is stored in parts is there as a whole if the store says so, and the node has all parts that it says.
func TestComplete(t *testing.T) {
	one, two := strings.Repeat("1", 1000), strings.Repeat("2", 10)
	list := func(tags ...string) string {
		var b strings.Builder
		for i, tag := range tags {
			tag = strings.ReplaceAll(tag, `"`, "&quot;")
			fmt.Fprintf(&b, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag></Part>", i+1, tag)
		}
		const name = "CompleteMultipartUpload"
		return "<" + name + ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/">` + b.String() + "</" + name + ">"
	}
	first, second := tagOf([]byte(one)), tagOf([]byte(two))
	for name, in := range map[string]struct {
		end    string
		status int
		said   string
		has    bool
	}{
		"completed":            {list(first, second), 200, completed, true},
		"tags without quotes":  {list(strings.Trim(first, `"`), strings.Trim(second, `"`)), 200, completed, true},
		"spaces first":         {list(first, second), 200, strings.Repeat(" ", 1000) + completed, true},
		"the first part alone": {list(first), 200, completed, true},
		"another part":         {list(first, `"x"`), 200, completed, false},
		"a part too many":      {list(first, second, second), 200, completed, false},
		"no part":              {list(), 200, completed, false},
		"no list":              {"x", 200, completed, false},
		"an error after all":   {list(first, second), 200, "<Error><Code>InternalError</Code></Error>", false},
		"refused":              {list(first, second), 400, "<Error><Code>InvalidPart</Code></Error>", false},
		"another answer":       {list(first, second), 200, "<CompleteMultipartUploadResult/>", false},
		"half an answer":       {list(first, second), 200, completed[:200], false},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nil)
			n.says(time.Hour)
			multipart(n, func() (int, string) { return in.status, in.said })
			sb := n.box("a")
			for i, content := range []string{"another", two, one} { // the first part is sent again
				target := fmt.Sprintf("/data/k?uploadId=u&partNumber=%d", []int{1, 2, 1}[i])
				if res, body := n.ask(sb, "PUT", target, content, nil); res.StatusCode != http.StatusOK {
					t.Fatalf("a part is answered %s", body)
				}
			}
			res, body := n.ask(sb, "POST", "/data/k?uploadId=u", in.end, nil)
			if res.StatusCode != in.status || body != in.said {
				t.Errorf("answered %d %s", res.StatusCode, body)
			}
			about, known := n.cache.Known(testFunction, testStore, "data", "s3://data/k")
			if known != in.has || known && about.Version != `"whole-2"` {
				t.Errorf("the node has it: %v, %+v", known, about)
			}
			if !known && n.buffer.Used() != 0 {
				t.Errorf("%d bytes are left in the buffer", n.buffer.Used())
			}
			if !known {
				return
			}
			want := one + two
			if name == "the first part alone" {
				want = one
			}
			i := n.cache.Fetch(t.Context(), objects.Request{ID: "1", Function: testFunction, Store: testStore,
				Reference: "s3://data/k", Limit: limit})
			defer i.Release()
			from, err := i.NewReader(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer from.Close()
			if got, err := io.ReadAll(from); err != nil || string(got) != want {
				t.Errorf("it is read as %d bytes, %v", len(got), err)
			}
		})
	}
}

// Parts that the store has not taken, or of which the node has no copy, are followed by nobody.
func TestPartsThatAreNotFollowed(t *testing.T) {
	n := start(t, nil)
	sb := n.box("a")
	status, tag := http.StatusOK, `"e"`
	n.store.before = func(r *http.Request) (*http.Response, error) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Etag": {tag}}, Body: http.NoBody}, nil
	}
	for name, in := range map[string]struct {
		status int
		tag    string
		number string
		body   string
		header http.Header
	}{
		"refused":   {status: 503, tag: `"e"`, number: "1", body: "x"},
		"no tag":    {status: 200, number: "1", body: "x"},
		"no number": {status: 200, tag: `"e"`, number: "x", body: "x"},
		"too large": {status: 200, tag: `"e"`, number: "1", body: strings.Repeat("x", bufferLimit+1)},
		"a key of its own": {status: 200, tag: `"e"`, number: "1", body: "x",
			header: http.Header{"X-Amz-Server-Side-Encryption-Customer-Algorithm": {"AES256"}}},
	} {
		status, tag = in.status, in.tag
		n.ask(sb, "PUT", "/data/k?uploadId=u&partNumber="+in.number, in.body, in.header)
		if n.uploads.take(uploadKey{"a", "data", "k", "u"}) != nil || n.buffer.Used() != 0 {
			t.Errorf("%s: it is followed, with %d bytes in the buffer", name, n.buffer.Used())
		}
	}
	// What the node cannot know the content of any more is not followed any more.
	for _, in := range []struct{ method, query string }{{"DELETE", ""}, {"PUT", "&partNumber=2"}} {
		n.ask(sb, "PUT", "/data/k?uploadId=u&partNumber=1", "x", nil)
		header := http.Header{}
		if in.method == "PUT" {
			header.Set("X-Amz-Copy-Source", "archive/x")
		}
		n.ask(sb, in.method, "/data/k?uploadId=u"+in.query, "", header)
		if n.uploads.take(uploadKey{"a", "data", "k", "u"}) != nil || n.buffer.Used() != 0 {
			t.Errorf("%s: it is followed, with %d bytes in the buffer", in.method, n.buffer.Used())
		}
	}
}

// A part is copied as it is, or not at all.
func TestCopyTo(t *testing.T) {
	n := start(t, nil)
	p := n.part(t, "x", 10)
	p.size = 11 // more than there is
	whole := n.part(t, "whole", 20)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.copyTo(ctx, whole.content, 0, make([]byte, roomSmall)); err == nil {
		t.Error("a part that is too short is copied")
	}
	p.content.Abort()
	whole.content.Abort()
}
