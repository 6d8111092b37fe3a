package s3

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// A prefix's objects are listed whole, however many pages there are, or with the store's error.
func TestList(t *testing.T) {
	prefix := source.Reference{Scheme: source.SchemeS3, Bucket: testBucket, Key: "models/llama/"}
	want := []source.Listed{{Key: prefix.Key + "a", Size: 1, Version: `"1"`}, {Key: prefix.Key + "b/c", Size: 2, Version: `"2"`}}
	for name, in := range map[string]struct {
		refuse int // the page that is refused, 0 for none
		ref    source.Reference
		title  string
	}{
		"whole":             {ref: prefix},
		"refused":           {refuse: 1, ref: prefix, title: "StoreForbidden"},
		"refused midway":    {refuse: 2, ref: prefix, title: "StoreForbidden"},
		"of another bucket": {ref: source.Reference{Scheme: source.SchemeS3, Bucket: "other"}, title: "StoreNotAllowed"},
	} {
		t.Run(name, func(t *testing.T) {
			pages := 0
			s, end := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				if pages++; pages == in.refuse {
					refuse(w, http.StatusForbidden, "AccessDenied")
					return
				}
				if r.URL.Path != "/"+testBucket || q.Get("prefix") != prefix.Key || q.Get("continuation-token") != []string{"", "more"}[pages-1] {
					t.Errorf("asked %v", r.URL)
				}
				one := want[pages-1]
				_, _ = fmt.Fprintf(w, `<ListBucketResult><IsTruncated>%t</IsTruncated><NextContinuationToken>more</NextContinuationToken>
					<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag></Contents></ListBucketResult>`, pages == 1, one.Key, one.Size, one.Version)
			}))
			defer end()
			var got []source.Listed
			err := s.List(t.Context(), in.ref, func(l source.Listed) error { got = append(got, l); return nil })
			switch {
			case in.title != "" && problem.Of(err).Title != in.title:
				t.Errorf("got %v", err)
			case in.title == "" && (err != nil || !slices.Equal(got, want)):
				t.Errorf("got %+v, %v", got, err)
			}
			enough := errors.New("enough")
			if in.title == "" {
				pages = 0
				if err := s.List(t.Context(), in.ref, func(source.Listed) error { return enough }); err != enough {
					t.Errorf("each's error comes back as %v", err)
				}
			}
		})
	}
}
