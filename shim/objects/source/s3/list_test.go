package s3

import (
	"context"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// listPage is how many keys a page of the fake store has, so that a few objects have several pages.
const listPage = 3

// list answers ListObjectsV2.
func (s *fakeStore) list(w http.ResponseWriter, r *http.Request) {
	type content struct {
		Key, ETag string
		Size      int
	}
	type page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string
		IsTruncated           bool
		NextContinuationToken string    `xml:",omitempty"`
		Contents              []content `xml:"Contents"`
	}
	q := r.URL.Query()
	p := page{EncodingType: q.Get("encoding-type")}
	s.mu.Lock()
	for path, o := range s.objects {
		key := strings.TrimPrefix(path, r.URL.Path+"/")
		if strings.HasPrefix(key, q.Get("prefix")) && key > q.Get("continuation-token") {
			p.Contents = append(p.Contents, content{key, o.tag, len(o.content)})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(p.Contents, func(a, b content) int { return strings.Compare(a.Key, b.Key) })
	if p.IsTruncated = len(p.Contents) > listPage; p.IsTruncated {
		p.Contents = p.Contents[:listPage]
		p.NextContinuationToken = p.Contents[listPage-1].Key
	}
	for i := range p.Contents {
		p.Contents[i].Key = url.QueryEscape(p.Contents[i].Key)
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(p) // the client may have gone
}

func listAll(s *Source, each func(string, source.Object) error) error {
	return s.List(context.Background(), source.Reference{Scheme: source.SchemeS3, Bucket: testBucket, Key: "a/"}, each)
}

// A store that cannot answer is asked again, and one that refuses is not.
func TestAListIsAskedForAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		status, times, asked int
		reason               problem.Reason
	}{
		"unavailable for a moment": {http.StatusServiceUnavailable, 2, 3, ""},
		"unavailable":              {http.StatusServiceUnavailable, 9, 3, "StoreUnavailable"},
		"forbidden":                {http.StatusForbidden, 9, 1, problem.ReasonStoreForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, asked := &fakeStore{}, 0
				store.before = func(w http.ResponseWriter, _ *http.Request) bool {
					if asked++; asked > tt.times {
						return false
					}
					refuse(w, tt.status, "Code")
					return true
				}
				store.put("a/b", "content")
				s, end := serve(t, store)
				defer end()
				n := 0
				err := listAll(s, func(string, source.Object) error { n++; return nil })
				if problem.ReasonOf(err) != tt.reason || asked != tt.asked || tt.reason == "" && n != 1 {
					t.Errorf("%d objects after %d questions: %v", n, asked, err)
				}
			})
		})
	}
}

// A store's list neither fills the memory, nor goes on for ever, nor has objects that were not asked for.
func TestAttackOfTheStoreByLists(t *testing.T) {
	const one = `<Contents><Key>a/b</Key><ETag>"e"</ETag><Size>1</Size></Contents>`
	for name, answer := range map[string]string{
		"another prefix":      strings.Replace(one, "a/b", "b", 1),
		"a negative size":     strings.Replace(one, ">1<", ">-1<", 1),
		"no entity tag":       strings.Replace(one, `"e"`, "", 1),
		"a wrong encoding":    "<EncodingType>url</EncodingType>" + strings.Replace(one, "a/b", "a/%zz", 1),
		"pages without end":   "<IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken>",
		"no way to the next":  "<IsTruncated>true</IsTruncated>" + one,
		"more than a page is": strings.Repeat(one, maxPage/len(one)+1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{before: func(w http.ResponseWriter, _ *http.Request) bool {
					_, _ = fmt.Fprintf(w, "<ListBucketResult>%s</ListBucketResult>", answer) // the client may have gone
					return true
				}}
				s, end := serve(t, store)
				defer end()
				if err := listAll(s, func(string, source.Object) error { return nil }); problem.ReasonOf(err) != "StoreUnavailable" {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
