package learn

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

func TestProposals(t *testing.T) {
	type header = map[string]string
	for _, c := range []struct {
		name, target string
		header       header
		read         string
		want         []string // besides the literal; what replaces most of the key comes first
	}{
		{"nothing in common", "/detect?a=b", header{"x-key": "other"}, "s3://videos/a.jpg", nil},
		{
			"a header", "/", header{"x-key": "cam1/a.jpg"}, "s3://videos/cam1/a.jpg",
			[]string{"s3://videos/{header.x-key}"},
		},
		{
			"two headers, one of them twice", "/", header{"x-cam": "cam1", "x-day": "mon"},
			"s3://videos/cam1/mon-cam1.jpg",
			[]string{
				"s3://videos/{header.x-cam}/{header.x-day}-{header.x-cam}.jpg",
				"s3://videos/{header.x-cam}/mon-{header.x-cam}.jpg",
				"s3://videos/cam1/{header.x-day}-cam1.jpg",
			},
		},
		{
			"two fields that agree", "/?key=frame7", header{"x-key": "frame7"}, "s3://videos/frame7.jpg",
			[]string{"s3://videos/{header.x-key}.jpg", "s3://videos/{query.key|urldecode}.jpg"},
		},
		{
			"the longest value", "/", header{"x-short": "cam", "x-long": "cam-1"}, "s3://videos/cam-1.jpg",
			[]string{"s3://videos/{header.x-long}.jpg", "s3://videos/{header.x-short}-1.jpg"},
		},
		{"a part of a word", "/", header{"x-key": "fram"}, "s3://videos/frame.jpg", nil},
		{"a short value", "/", header{"x-key": "ab"}, "s3://videos/ab.jpg", nil},
		{
			"a short value that is a segment", "/", header{"x-key": "7"}, "s3://videos/7/a.jpg",
			[]string{"s3://videos/{header.x-key}/a.jpg"},
		},
		{
			"an encoded header", "/", header{"ce-subject": "objects/a%20b.jpg"}, "s3://videos/a b.jpg",
			[]string{"s3://videos/{header.ce-subject|urldecode|trimprefix:objects/}"},
		},
		{
			"a URL", "/?from=s3%3A%2F%2Fvideos%2Fa%2Fb.jpg", nil, "s3://videos/a/b.jpg",
			[]string{"s3://videos/{query.from|urldecode|trimprefix:s3://videos/}"},
		},
		{
			"a parameter that is read as it stands", "/?key=a%2Fb", nil, "s3://videos/a%2Fb",
			[]string{"s3://videos/{query.key}"},
		},
		{
			"a plus sign", "/?key=red+flower.jpg", nil, "s3://videos/red flower.jpg",
			[]string{"s3://videos/{query.key|urldecode}"},
		},
		{
			"a segment of the path", "/v1/cam1/latest", nil, "s3://videos/cam1.jpg",
			[]string{
				"/v1/{p2}/latest s3://videos/{path.p2|urldecode}.jpg",
				"/{p1}/{p2}/{p3} s3://videos/{path.p2|urldecode}.jpg",
			},
		},
		{
			"a segment that no route can have", "/a,b/cam1", nil, "s3://videos/cam1.jpg",
			[]string{"/{p1}/{p2} s3://videos/{path.p2|urldecode}.jpg"},
		},
		{
			"the rest of the path", "/videos/a/b/c.jpg", nil, "s3://videos/a/b/c.jpg",
			[]string{
				"/videos/{+rest} s3://videos/{path.rest|urldecode}", "/{p1}/{+rest} s3://videos/{path.rest|urldecode}",
				"/videos/{p2}/{p3}/{p4} s3://videos/{path.p2|urldecode}/{path.p3|urldecode}/{path.p4|urldecode}",
				"/{p1}/{p2}/{p3}/{p4} s3://videos/{path.p2|urldecode}/{path.p3|urldecode}/{path.p4|urldecode}",
			},
		},
		{
			"a segment twice", "/v/cam1/f7a", nil, "s3://videos/cam1/f7a-f7a.jpg",
			[]string{
				"/v/{p2}/{p3} s3://videos/{path.p2|urldecode}/{path.p3|urldecode}-{path.p3|urldecode}.jpg",
				"/{p1}/{p2}/{p3} s3://videos/{path.p2|urldecode}/{path.p3|urldecode}-{path.p3|urldecode}.jpg",
				"/v/{+rest} s3://videos/{path.rest|urldecode}-f7a.jpg",
			},
		},
		{"credentials", "/?token=frame7", header{
			"authorization": "frame7", "cookie": "frame7", "x-api-key": "frame7", "x-session": "frame7",
		}, "s3://videos/frame7.jpg", nil},
		{"other headers of no use", "/", header{
			"host": "frame7", "x-request-id": "frame7",
			"traceparent": "frame7", "user-agent": "frame7", "x-amz-date": "frame7",
			"x-forwarded-for": "frame7", "content-length": "frame7", "x-headstart-input": "frame7", "accept": "frame7",
		}, "s3://videos/frame7.jpg", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			for name, value := range c.header {
				h.Set(name, value)
			}
			r := NewRequest(c.target, h)
			var got []string
			for _, p := range proposals(c.read, []Request{r}) {
				got = append(got, p.text)
				parsed, err := reference.ParseTemplate(p.text)
				if err != nil {
					t.Fatal(p.text, err)
				}
				if ref, ok := r.expand(parsed); !ok || ref != c.read {
					t.Errorf("%s makes %q", p.text, ref)
				}
			}
			// The first ones are given, and there may be others.
			want := c.want
			if len(got) < len(want)+1 || !slices.Equal(got[:len(want)], want) || got[len(got)-1] != c.read {
				t.Errorf("proposes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(append(want, c.read), "\n"))
			}
			if want == nil && len(got) != 1 {
				t.Errorf("proposes %q", got)
			}
		})
	}
}

func TestNothingIsProposedForWhatIsNoReference(t *testing.T) {
	r := NewRequest("/", http.Header{"X-Key": {"frame7"}})
	for _, read := range []string{
		"", "frame7", "s3://videos", "s3://videos/", "s3://Videos/frame7", "s3://videos/{frame7}",
		"s3://videos/../frame7", "s3://videos/\x00frame7", "s3://videos/" + strings.Repeat("a", 2000),
	} {
		if all := proposals(read, []Request{r}); len(all) > 0 {
			t.Errorf("%q: %v", read, all)
		}
	}
}

func TestARecordProvesAndDisproves(t *testing.T) {
	var c candidate
	trials := func(right bool, most int) int {
		was := c.Proven
		for i := range most {
			c.note(true, right, 1e6)
			if c.judge(); c.Proven != was {
				return i + 1
			}
		}
		return -1
	}
	for _, want := range []struct {
		right bool
		n     int // trials until it is proven, or no more
	}{{true, 5}, {false, 2}, {true, 12}, {false, 2}} {
		if n := trials(want.right, 100); n != want.n {
			t.Errorf("after %d trials that are right (%v), want %d", n, want.right, want.n)
		}
	}
	trials(true, 1000)
	for range 100 {
		c.note(true, true, 1e6)
		c.judge()
	}
	if n := trials(false, 100); n != 5 {
		t.Errorf("given up after %d wrong trials", n)
	}
}
