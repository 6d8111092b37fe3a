package main

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/admin"
	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

func TestCacheText(t *testing.T) {
	nodes := []admin.CacheNode{{Node: "edge", Entries: []*nodeapi.CacheEntry{
		{Namespace: "media", Store: "default", Reference: "s3://models/llama/", Bytes: 5e8, Tier: "volume", Objects: 3, Users: 1, Pinned: true},
		{Store: "default", Reference: "s3://shared/a", Bytes: 1234567, Tier: "disk"}}},
		{Node: "cloud", Problem: "CacheBusy: the node works on other calls"}}
	var out bytes.Buffer
	for _, print := range []func() error{
		func() error { return printCache(&out, nodes) }, func() error { return printUsage(&out, nodes) },
		func() error { return printWarm(&out, nodes) }, func() error { return printCacheProblems(&out, nodes) }} {
		if err := print(); err != nil {
			t.Fatal(err)
		}
	}
	const want = `NODE   NAMESPACE   STORE     REFERENCE            IS        SIZE      USERS   STATE
edge   media       default   s3://models/llama/   3 files   500 MB    1       volume, pinned
edge   (shared)    default   s3://shared/a        object    1.23 MB   0       disk
NODE   NAMESPACE   TIER     NUMBER   SIZE      IN USE   PINNED
edge   (shared)    disk     1        1.23 MB   0 MB     0 MB
edge   media       volume   1        500 MB    500 MB   500 MB
WARM ON
edge

NODE    PROBLEM
cloud   CacheBusy: the node works on other calls
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}
