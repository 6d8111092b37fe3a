package s3proxy

import (
	"context"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// A request waits for the directory while daemons are replaced, and no longer than connections do. Of a sandbox that has
// none it is told so at once.
func TestADirectoryIsWaitedFor(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	synctest.Test(t, func(t *testing.T) {
		s := &Server{sandboxes: map[string]*sandbox{"a": {}}}
		store := func(id string) (reason string, took time.Duration) {
			began := time.Now()
			_, err := s.Store(t.Context(), id, "none", source.Reference{}, nil)
			p := problem.Of(err)
			if p.Status != map[string]int{reasonUnknown: http.StatusNotFound, reasonNoOutput: http.StatusNotFound, reasonNotStored: http.StatusServiceUnavailable}[p.Title] {
				t.Errorf("%+v", p)
			}
			return p.Title, time.Since(began)
		}
		is := func(when, id, want string, wantTook time.Duration) {
			t.Helper()
			if reason, took := store(id); reason != want || took != wantTook {
				t.Errorf("%s: %s after %v", when, reason, took)
			}
		}
		is("of no sandbox with S3", "b", reasonNoOutput, 0)
		is("never handed over", "a", reasonNotStored, handOverMost)
		var closed func()
		hand := func(d *os.File) {
			c, err := s.sandboxes["a"].outputs.open(d)
			if err != nil {
				t.Error(err)
			}
			closed = c
		}
		time.AfterFunc(time.Second, func() { hand(dir) })
		is("handed over in time", "a", reasonUnknown, time.Second)
		is("handed over", "a", reasonUnknown, 0)
		synctest.Wait()
		closed()
		closed()
		time.AfterFunc(2*time.Second, func() { hand(dir) })
		is("handed over again", "a", reasonUnknown, 2*time.Second)
		synctest.Wait()
		closed()
		hand(nil)
		is("left alone", "a", reasonNoOutput, 0)
		closed()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.sandboxes["a"] = &sandbox{}
		if _, err := s.Store(ctx, "a", "none", source.Reference{}, nil); err == nil {
			t.Error("the program has gone")
		}
	})
}
