package ingress

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/filters/filterapi"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// What another daemon says of a request that it hands back is a problem with a title that metrics
// can have.
func FuzzHandedBack(f *testing.F) {
	f.Add(503, `{"type":"https://headstart.dev/errors#InstanceGone","title":"InstanceGone","status":200,"detail":"gone"}`)
	f.Add(503, `{"title":"a title\n","status":"x"}`)
	f.Add(200, `{}`)
	f.Add(503, `null`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		err := handedBack(&http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body))})
		if p := problem.Of(err); !problem.IsTitle(p.Title) {
			t.Errorf("the title is %q", p.Title)
		} else if isUndelivered(err) && p.Status != status {
			t.Errorf("the status is %d, not %d", p.Status, status)
		}
	})
}

// A wait is never below zero, and never longer than its header can say.
func FuzzWaitedElsewhere(f *testing.F) {
	for _, said := range []string{"12000", "-1", "+1", "1e9", "4294967296", "", "0x10", "1_0"} {
		f.Add(said)
	}
	f.Fuzz(func(t *testing.T, said string) {
		d := waitedElsewhere(http.Header{http.CanonicalHeaderKey(filterapi.HeaderWaited): {said}})
		if d < 0 || d > (1<<32)*time.Millisecond {
			t.Errorf("%q is %v", said, d)
		}
	})
}

// An authority's host is found in one way, however it is written.
func FuzzHost(f *testing.F) {
	for _, a := range []string{"Video.Example:80", "[::1]:80", "[::1]", "video.example.", ":", "a:b:c", ""} {
		f.Add(a)
	}
	f.Fuzz(func(t *testing.T, authority string) {
		h := host(authority)
		if strings.ToLower(h) != h {
			t.Errorf("%q is not in lower case", h)
		}
		if !strings.ContainsAny(h, ":.") && host(h) != h {
			t.Errorf("%q is %q, which is %q", authority, h, host(h))
		}
	})
}
