package s3proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/headstart-mesh/headstart/shim/problem"
)

// What the node takes a query for, and what the store gets, is what the client has signed: also with characters that
// net/http drops.
func TestQueries(t *testing.T) {
	n := start(t, nil)
	sb := n.box("a")
	for _, in := range []struct{ first, code, target string }{
		{"DELETE /data/k?tagging;", "NotImplemented", ""},
		{"DELETE /data/k?versionId=a;b", "", "/data/k?versionId=a%3Bb"},
		{"DELETE /data/k?uploadId=a;b", "", "/data/k?uploadId=a%3Bb"},
		{"PUT /data/k?acl;x", "NotImplemented", ""},
		{"GET /data?list-type=2&prefix=a;b", "", "/data?list-type=2&prefix=a%3Bb"},
		{"GET /data?list-type=2&prefix=a+b%2Bc%20d", "", "/data?list-type=2&prefix=a+b%2Bc+d"},
		{"GET /data?prefix=%zz", "InvalidURI", ""},
		{"GET /data?prefix=a&&marker=b", "", "/data?marker=b&prefix=a"},
		{"GET /data?prefix=a=b", "", "/data?prefix=a%3Db"},
		{"GET /data?x-amz-acl=public-read", "NotImplemented", ""},
		{"PUT /data/k?x-amz-copy-source=archive%2Fx", "NotImplemented", ""},
	} {
		method, target, _ := strings.Cut(in.first, " ")
		r := incoming(method, strings.ReplaceAll(target, "%zz", ""), "", nil)
		r.URL.RawQuery = strings.ReplaceAll(r.URL.RawQuery, "%zz", "")
		sb.sign(t, r)
		if strings.Contains(target, "%zz") { // which nobody can sign
			r.URL.RawQuery += "%zz"
		}
		_, body, _ := n.do(sb, r)
		asked := n.store.takeAsked()
		if code := codeOf(body); code != in.code || (len(asked) == 0) != (in.target == "") {
			t.Errorf("%s: %q; the store is asked for %v", in.first, code, asked)
		} else if len(asked) > 0 && asked[0].target != in.target {
			t.Errorf("%s: the store is asked for %v", in.first, asked)
		}
	}
}

// presigned is a request by a URL that was signed with these parameters in it.
func (n *node) presigned(sb *sandbox, method, target string, header http.Header) *http.Request {
	n.t.Helper()
	r := incoming(method, target, "content", header)
	r.Header.Del("X-Amz-Content-Sha256")
	r.ContentLength = int64(len("content"))
	if method == http.MethodGet {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	sb.presign(n.t, r)
	return r
}

func (sb *sandbox) presign(t *testing.T, r *http.Request) {
	t.Helper()
	id := idPrefix + strings.Repeat("9", 10)
	secret, token, _, _ := sb.secret(id, time.Now())
	like := r.Clone(r.Context())
	like.URL.Scheme, like.URL.Host = "http", r.Host
	like.ContentLength = 0
	q := like.URL.Query()
	q.Set("X-Amz-Expires", "60")
	like.URL.RawQuery = q.Encode()
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping, o.DisableHeaderHoisting = true, true })
	credentials := aws.Credentials{AccessKeyID: id, SecretAccessKey: secret, SessionToken: token}
	signed, _, err := signer.PresignHTTP(r.Context(), credentials, like, unsigned, "s3", testRegion, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	r.URL.RawQuery = u.RawQuery
}

// SDKs put headers into the URLs that they presign. There they mean the same. S3 only ignores checksums.
func TestPresignedURLs(t *testing.T) {
	for name, in := range map[string]struct {
		method, target string
		header         http.Header
		code           string
		passed         http.Header // what the store gets besides
	}{
		"by boto3":              {method: "GET", target: "/data/k"},
		"by the Go SDK":         {method: "GET", target: "/data/k?x-id=GetObject&X-Amz-Checksum-Mode=ENABLED"},
		"by the JavaScript SDK": {method: "GET", target: "/data/k?x-amz-checksum-mode=ENABLED&x-id=GetObject"},
		"a PUT by the JavaScript SDK": {method: "PUT",
			target: "/data/new?x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32&x-id=PutObject"},
		"the bucket's owner": {method: "PUT", target: "/data/new?x-amz-expected-bucket-owner=111122223333",
			passed: http.Header{"X-Amz-Expected-Bucket-Owner": {"111122223333"}}},
		"metadata": {method: "PUT", target: "/data/new?x-amz-meta-camera=7",
			passed: http.Header{"X-Amz-Meta-Camera": {"7"}}},
		"a header, too": {method: "PUT", target: "/data/new?x-amz-meta-camera=7",
			header: http.Header{"X-Amz-Meta-Camera": {"8"}}, passed: http.Header{"X-Amz-Meta-Camera": {"8"}}},
		"access for all": {method: "PUT", target: "/data/new?x-amz-acl=public-read", code: "AccessDenied"},
		"access for one": {method: "PUT", target: "/data/new?x-amz-grant-read=id%3D1", code: "AccessDenied"},
		"a copy":         {method: "PUT", target: "/data/new?x-amz-copy-source=operator%2Fin", code: "AccessDenied"},
		"a copy, repeated": {method: "PUT", code: "InvalidArgument",
			target: "/data/new?x-amz-copy-source=data%2Fin&x-amz-copy-source=operator%2Fin"},
		"an unknown one": {method: "GET", target: "/data/k?x-unknown=1", code: "NotImplemented"},
		"credentials": {method: "PUT",
			target: "/data/new?x-amz-security-token=t&x-amz-date=d&x-amz-content-sha256=c"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nil)
			n.store.put("data/k", []byte("content"), nil)
			sb := n.box("a")
			r := n.presigned(sb, in.method, in.target, in.header)
			res, body, _ := n.do(sb, r)
			asked := n.store.takeAsked()
			if code := codeOf(body); code != in.code || code == "" && res.StatusCode != http.StatusOK {
				t.Fatalf("%d %s; the store is asked for %v", res.StatusCode, body, asked)
			}
			if in.code != "" {
				if len(asked) > 0 {
					t.Errorf("the store is asked for %v", asked)
				}
				return
			}
			for _, a := range asked {
				if strings.Contains(strings.ToLower(a.target), "x-amz") {
					t.Errorf("the store is asked for %v", a)
				}
				if a.method != http.MethodPut {
					continue
				}
				for name, values := range in.passed {
					if !slices.Equal(a.header[name], values) {
						t.Errorf("the store gets %s %q", name, a.header[name])
					}
				}
				for _, name := range []string{"X-Amz-Security-Token", "X-Amz-Date", "X-Amz-Checksum-Crc32",
					"X-Amz-Sdk-Checksum-Algorithm"} {
					if a.header[name] != nil {
						t.Errorf("the store gets %s %q", name, a.header[name])
					}
				}
			}
		})
	}
}

// Who may ask for what is found out before anybody is asked.
func TestAdmission(t *testing.T) {
	const denied, operator = "AccessDenied", "bucket operator"
	none := problem.New(http.StatusForbidden, "StoreNotAllowed", "", "the namespace may not use the store")
	for name, in := range map[string]struct {
		change             func(*Config)
		method, target     string
		from               string
		code, says, unsaid string
	}{
		"an unlisted bucket": {method: "GET", target: "/operator/in", code: denied, says: operator},
		"a copy from one":    {method: "PUT", target: "/data/k", from: "operator/in", code: denied, says: operator},
		"a copy into one":    {method: "PUT", target: "/operator/k", from: "data/in", code: denied, says: operator},
		"one that is read":   {method: "PUT", target: "/archive/k", code: denied, says: "only read bucket archive"},
		"a store that the namespace may not use": {change: func(c *Config) {
			c.Store = func(string, string) (Store, error) { return nil, none }
		}, method: "GET", target: "/data/in", code: "AccessDenied", says: none.Detail},
		"a store that there is not": {change: func(c *Config) {
			c.Store = func(string, string) (Store, error) {
				return nil, problem.New(http.StatusBadGateway, "StoreUnknown", "", "there is no store")
			}
		}, method: "GET", target: "/data/in", code: "ServiceUnavailable", says: "there is no store"},
		"no operation": {method: "GET", target: "/operator/in?acl", code: "NotImplemented", unsaid: "operator/"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, in.change)
			header := http.Header{}
			if in.from != "" {
				header.Set("X-Amz-Copy-Source", in.from)
			}
			_, body := n.ask(n.box("a"), in.method, in.target, "", header)
			if code := codeOf(body); code != in.code || !strings.Contains(body, in.says) {
				t.Errorf("answered %s", body)
			}
			if asked, fetched := n.store.takeAsked(), n.store.takeFetched(); len(asked)+len(fetched) > 0 {
				t.Errorf("the store is asked for %v and %v", asked, fetched)
			}
		})
	}
}

// A request that comes before the list of stores waits for it.
func TestARequestWaitsForTheStores(t *testing.T) {
	var n *node
	came := false
	n = start(t, func(c *Config) {
		c.Await = func(context.Context) { came = true }
		c.Store = func(string, string) (Store, error) {
			if !came {
				return nil, problem.New(http.StatusServiceUnavailable, "StoresUnknown", "", "the node has no list of stores yet")
			}
			return n.store, nil
		}
	})
	if res, body := n.ask(n.box("a"), "GET", "/", "", nil); res.StatusCode != http.StatusOK {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

// The list of buckets has those of the operator's list, and none besides.
func TestListBuckets(t *testing.T) {
	n := start(t, nil)
	for query, want := range map[string][]string{
		"": {"data", "archive"}, "?prefix=arch": {"archive"}, "?prefix=x": nil,
	} {
		res, body := n.ask(n.box("a"), "GET", "/"+query, "", nil)
		var got []string
		for _, part := range strings.Split(body, "<Name>")[1:] {
			name, _, _ := strings.Cut(part, "<")
			got = append(got, name)
		}
		is := strings.Contains(body, "<ListAllMyBucketsResult")
		if res.StatusCode != http.StatusOK || !slices.Equal(got, want) || !is {
			t.Errorf("%q: %d %s", query, res.StatusCode, body)
		}
	}
}

// What the program changes by the store, the node does not answer with any more.
func TestChangesAreSeen(t *testing.T) {
	const list = `<Delete><Object><Key>other</Key></Object><Object><Key>k</Key></Object></Delete>`
	copies := http.Header{"X-Amz-Copy-Source": {"archive/x"}}
	for name, in := range map[string]struct {
		method, target, body string
		header               http.Header
	}{
		"deleted":             {method: "DELETE", target: "/data/k"},
		"deleted, a version":  {method: "DELETE", target: "/data/k?versionId=1"},
		"deleted with others": {method: "POST", target: "/data?delete", body: list},
		"copied":              {method: "PUT", target: "/data/k", header: copies},
		"stored":              {method: "PUT", target: "/data/k", body: "another"},
		"completed":           {method: "POST", target: "/data/k?uploadId=1", body: "<CompleteMultipartUpload/>"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, nil)
			n.says(time.Hour)
			sb := n.box("a")
			n.store.put("data/k", []byte("content"), nil)
			for _, way := range []int{1, 0} { // fetched, and found
				_, body := n.ask(sb, "GET", "/data/k", "", nil)
				if body != "content" || len(n.store.takeFetched()) != way {
					t.Fatalf("read as %q", body)
				}
			}
			n.ask(sb, in.method, in.target, in.body, in.header)
			want, fetches := "newer", 1
			if name == "stored" { // the node has it
				want, fetches = "another", 0
			} else {
				n.store.put("data/k", []byte("newer"), nil)
			}
			if _, body := n.ask(sb, "GET", "/data/k", "", nil); body != want || len(n.store.takeFetched()) != fetches {
				t.Errorf("read as %q", body)
			}
		})
	}
}

// onRead does something when it is read first.
type onRead struct {
	io.Reader
	do func()
}

func (o *onRead) Read(p []byte) (int, error) {
	if o.do != nil {
		o.do()
		o.do = nil
	}
	return o.Reader.Read(p)
}

// S3 begins to answer a copy long before it is made. What is read meanwhile is not what is read afterwards.
func TestACopyIsSeenWhenItIsMade(t *testing.T) {
	n := start(t, nil)
	n.says(time.Hour)
	sb := n.box("a")
	n.store.put("data/k", []byte("before"), nil)
	n.store.before = func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPut {
			return nil, nil
		}
		body := &onRead{strings.NewReader("<CopyObjectResult/>"), func() {
			if _, body := n.ask(sb, "GET", "/data/k", "", nil); body != "before" {
				t.Errorf("while it is made, %q is read", body)
			}
			n.store.put("data/k", []byte("after"), nil)
		}}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(body)}, nil
	}
	n.ask(sb, "PUT", "/data/k", "", http.Header{"X-Amz-Copy-Source": {"archive/x"}})
	if _, body := n.ask(sb, "GET", "/data/k", "", nil); body != "after" {
		t.Errorf("%q is read", body)
	}
}

// A body that is not an object is bounded, and what it has to be.
func TestSmallBodies(t *testing.T) {
	n := start(t, nil)
	sb := n.box("a")
	list := func(objects string) string { return "<Delete>" + objects + "</Delete>" }
	const first = "<Object><Key>k</Key></Object>"
	for name, in := range map[string]struct{ target, body, code string }{
		"much":            {"/data?delete", strings.Repeat("x", bodyMost+1), "MaxMessageLengthExceeded"},
		"much, parts":     {"/data/k?uploadId=1", strings.Repeat("x", bodyMost+1), "MaxMessageLengthExceeded"},
		"no XML":          {"/data?delete", "x", "MalformedXML"},
		"nothing":         {"/data?delete", "", "MalformedXML"},
		"another bucket":  {"/data?delete", list(first + "<Object><Key>../x/in</Key></Object>"), "InvalidArgument"},
		"another, within": {"/data?delete", list("<Object><Key>a/../../x/in</Key></Object>"), "InvalidArgument"},
		"another, first":  {"/data?delete", list("<Object><Key>../x</Key><Key>k</Key></Object>"), "InvalidArgument"},
		"another, last":   {"/data?delete", list("<Object><Key>k</Key><Key>../x</Key></Object>"), "InvalidArgument"},
		"another, coded":  {"/data?delete", list("<Object><Key>&#46;./x</Key></Object>"), "InvalidArgument"},
		"a version": {"/data?delete", list("<Object><Key>k</Key><VersionId>../../x</VersionId></Object>"),
			"InvalidArgument"},
	} {
		if _, body := n.ask(sb, "POST", in.target, in.body, nil); codeOf(body) != in.code {
			t.Errorf("%s: %s", name, body)
		}
		if asked := n.store.takeAsked(); len(asked) > 0 {
			t.Errorf("%s: the store is asked for %v", name, asked)
		}
	}
	big := "<Delete>" + strings.Repeat(" ", bodyMost-len("<Delete></Delete>")) + "</Delete>"
	if res, body := n.ask(sb, "POST", "/data?delete", big, nil); res.StatusCode != http.StatusOK {
		t.Errorf("of the largest: %s", body)
	}
	if asked := n.store.takeAsked(); len(asked) != 1 || string(asked[0].body) != big {
		t.Errorf("the store is asked for %v", asked)
	}
}

// Requests are counted by the ways of their objects, or by what became of them.
// Of the operator's credentials programs hear whose they are, and nothing else. All other answers are the store's.
func TestTheStoreRefusesTheNode(t *testing.T) {
	for code, want := range map[string]string{
		"SignatureDoesNotMatch": "the node has for", "InvalidAccessKeyId": "the node has for", "ExpiredToken": "the node has for",
		"AccessDenied": "<Code>AccessDenied</Code><Message>of the store</Message>", "": "of the store",
	} {
		n := start(t, nil)
		n.store.before = func(*http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			w.WriteHeader(http.StatusForbidden)
			said := "of the store"
			if code != "" {
				said = "<Error><Code>" + code + "</Code><Message>of the store</Message></Error>"
			}
			_, err := w.WriteString(said)
			return w.Result(), err
		}
		res, body := n.ask(n.box("a"), "GET", "/data?list-type=2", "", nil)
		if res.StatusCode != http.StatusForbidden || !strings.Contains(body, want) {
			t.Errorf("%q: %d %s", code, res.StatusCode, body)
		}
	}
}

func TestRequestsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, nil)
		sb := n.box("a")
		n.store.put("data/k", []byte("content"), nil)
		for range 2 {
			n.ask(sb, "GET", "/data/k", "", nil)
			synctest.Wait() // for the node to have it
		}
		n.ask(sb, "PUT", "/data/new", "content", nil)
		n.ask(sb, "GET", "/data/none", "", nil)
		n.ask(sb, "GET", "/operator/k", "", nil)
		got := n.counts(t)
		for name, want := range map[string]float64{
			"requests_total GetObject store": 1, "requests_total GetObject revalidated": 1,
			"requests_total GetObject 404": 1, "requests_total GetObject AccessDenied": 1,
			"requests_total PutObject passed": 1, "requests_in_flight": 0,
			"bytes_total read": 14, "bytes_total written": 7,
		} {
			if got["headstart_s3_"+name] != want {
				t.Errorf("%s is %v, not %v", name, got["headstart_s3_"+name], want)
			}
		}
	})
}

// counts are the metrics, by their names and labels without the store's.
func (n *node) counts(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() != "store" {
					name += " " + l.GetValue()
				}
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return all
}
