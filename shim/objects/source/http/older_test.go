package http

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source/sourcetest"
)

// A file is replaced by one that is older (cp -p, rsync, a rollback). Go's file server, with a weak tag, answers
// If-Modified-Since with 304, the new tag, and no date.
func TestOlderFileBehindAWeakTag(t *testing.T) {
	newest := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var older atomic.Bool
	host := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if older.Load() {
			w.Header().Set("ETag", `W/"old"`)
			http.ServeContent(w, r, "", newest.Add(-time.Hour), strings.NewReader("rolled back"))
			return
		}
		w.Header().Set("ETag", `W/"new"`)
		http.ServeContent(w, r, "", newest, strings.NewReader("faulty"))
	}))
	s, err := New(Config{Store: "web", Buckets: []string{host}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first := &sourcetest.Sink{}
	if err := s.Fetch(t.Context(), ref("http", host, "k"), "", first.Begin); err != nil {
		t.Fatal(err)
	}
	older.Store(true)
	second := &sourcetest.Sink{}
	err = s.Fetch(t.Context(), ref("http", host, "k"), first.Object.Version, second.Begin)
	if err != nil || string(second.Content) != "rolled back" {
		t.Errorf("held %q: %q, %v", first.Object.Version, second.Content, err)
	}
}

// Whatever the header says, it holds no longer than it can.
func TestOverflow(t *testing.T) {
	h := http.Header{"Expires": {"Mon, 01 Jan 0001 00:00:00 GMT"}, "Date": {"Fri, 31 Dec 9999 00:00:00 GMT"}, "Age": {"2147483647"}}
	if got := (&object{Source: &Source{}}).fresh(h); got > 0 {
		t.Errorf("an answer that expired before it was sent holds for %v", got)
	}
}
