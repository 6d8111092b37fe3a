package main

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/nodeapi/distinct"
)

// What nodes say of an observed function is shown together.
func TestObservedInputsAreShown(t *testing.T) {
	at := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	said := func(input, lacked string, at time.Time, refs ...string) *nodeapi.CacheEntry {
		var s distinct.Sketch
		o := &nodeapi.Observed{Function: "shop/fire", Input: input, Requests: int64(2 * len(refs)), Incomplete: 1, Field: lacked, Refused: 2, Unnamed: 3}
		for i, ref := range refs {
			s.Add(ref)
			o.Latest = append(o.Latest, &nodeapi.NamedReference{Reference: ref, At: timestamppb.New(at.Add(-time.Duration(i) * time.Minute))})
		}
		o.Sketch = s.Hashes()
		return &nodeapi.CacheEntry{Namespace: "shop", Reference: "s3://videos/{header.x-key}", Observed: o}
	}
	all := observedOf([]admin.CacheNode{
		{Node: "edge", Entries: []*nodeapi.CacheEntry{said("", "", at, "s3://videos/a", "s3://videos/b"), said("mask", "", at), {Namespace: "shop", Reference: "s3://videos/a"}}},
		{Node: "cloud", Entries: []*nodeapi.CacheEntry{said("", "header x-key", at.Add(time.Second), "s3://videos/c", "s3://videos/a"),
			{Namespace: "other", Observed: &nodeapi.Observed{Function: "other/fire"}}}},
	}, "shop")
	var out strings.Builder
	for _, err := range []error{printObserved(&out, all), printObserved(&out, nil), printJSON(&out, all[0].Latest[:2])} {
		if err != nil {
			t.Error(err)
		}
	}
	want := `FUNCTION    INPUT                              REQUESTS   DISTINCT   UNNAMED   INCOMPLETE         REFUSED   LATEST
shop/fire   s3://videos/{header.x-key}         8          3          6         2 (header x-key)   4         s3://videos/c
shop/fire   mask: s3://videos/{header.x-key}   0          0          3         1                  2         -
No function is observed. Set headstart.dev/mode: observe on a Service to see what its requests name.
[
  {
    "reference": "s3://videos/c",
    "node": "cloud",
    "at": "2026-11-27T09:00:01Z"
  },
  {
    "reference": "s3://videos/a",
    "node": "edge",
    "at": "2026-11-27T09:00:00Z"
  }
]
`
	if out.String() != want {
		t.Errorf("printed\n%s", out.String())
	}
}
