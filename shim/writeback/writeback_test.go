package writeback

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/nodeapi/writes"
	"github.com/headstart-mesh/headstart/shim/objects/digest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func well(*http.Request) fate { return fate{wait: 10 * time.Millisecond} }

// open opens a Writer before a store.
func open(t testing.TB, dir, node string, s Store) *Writer {
	t.Helper()
	return openAmong(t, dir, node, s, nil)
}

// openAmong is open of one that can ask others.
func openAmong(t testing.TB, dir, node string, s Store, others Holders) *Writer {
	t.Helper()
	return Open(Config{Holders: others, Dir: dir, Node: node, Bytes: 1 << 20, Writes: 100, Patience: time.Minute,
		Store: func(string) (Store, string, error) { return s, "s3.example.com", nil }, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
}

// object is one with a content.
func object(key, content string) Object {
	return Object{Key: Key{"s", "b", key}, Function: "ns/f", Content: content, Header: http.Header{"X-Amz-Meta-Camera": {"7"}}}
}

func held(t testing.TB, w *Writer, key string) string {
	t.Helper()
	h, err := w.Held(Key{"s", "b", key})
	if err != nil {
		t.Fatal(err)
	}
	if h == nil {
		return ""
	}
	defer h.Close()
	b, err := io.ReadAll(h)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A write is there for readers here at once, and in the store a little later, with nothing left of it.
func TestAWriteIsUploaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		w := open(t, dir, "a", &link{store: s, fate: well})
		o := object("k/1", "hello")
		if err := w.Write(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if got := held(t, w, "k/1"); got != "hello" || s.get("k/1") != "" {
			t.Errorf("here %q, in the store %q", got, s.get("k/1"))
		}
		if err := w.Await(t.Context(), o.Key); err != nil || s.get("k/1") != "hello" {
			t.Errorf("%v, in the store %q", err, s.get("k/1"))
		}
		synctest.Wait()
		time.Sleep(time.Second)
		if got := s.objects["k/1"]; got.tag != o.Tag() || got.header.Get("X-Amz-Meta-Camera") != "7" {
			t.Errorf("%+v", got)
		}
		if left := files(t, dir); len(left) > 0 || len(s.markers()) > 0 || held(t, w, "k/1") != "" {
			t.Errorf("left: %q, %q", left, s.markers())
		}
		if n, b, age := w.Pending(); b != 0 || n != 0 || age != 0 {
			t.Errorf("%d bytes, %d writes for %v", b, n, age)
		}
		w.Close()
	})
}

// Readers, lists and writers on other nodes wait while a node cannot upload, and learn whose write it is.
func TestOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		var down sync.Map
		a := open(t, t.TempDir(), "node-a", &link{store: s, fate: func(r *http.Request) fate {
			if _, is := down.Load("store"); is {
				return fate{refused: 503}
			}
			return well(r)
		}})
		b := open(t, t.TempDir(), "node-b", &link{store: s, fate: well})
		o := object("dir/k", "hello")
		if err := a.Write(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		down.Store("store", true)
		for what, err := range map[string]error{
			"read":  b.Await(t.Context(), o.Key),
			"list":  b.AwaitPrefix(t.Context(), Key{"s", "b", "dir/"}),
			"write": b.Write(t.Context(), object("dir/k", "other")),
		} {
			if e, is := errors.AsType[*PendingError](err); !is || !strings.Contains(e.Error(), "node-a") || e.Marker.Size != 5 {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := b.AwaitPrefix(t.Context(), Key{"s", "b", "elsewhere/"}); err != nil {
			t.Error(err)
		}
		down.Delete("store")
		if err := b.Await(t.Context(), o.Key); err != nil || s.get("dir/k") != "hello" {
			t.Errorf("%v, %q", err, s.get("dir/k"))
		}
		a.Close()
		b.Close()
	})
}

// Two writers of one key on two nodes, and on one, are one after the other.
func TestWritersOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		a, b := open(t, t.TempDir(), "a", &link{store: s, fate: well}), open(t, t.TempDir(), "b", &link{store: s, fate: well})
		var last string
		var mu sync.Mutex
		var writing sync.WaitGroup
		for i, w := range []*Writer{a, b, a, b} {
			o := object("k", strings.Repeat("x", i+1))
			writing.Go(func() {
				err := w.Write(t.Context(), o)
				mu.Lock()
				defer mu.Unlock()
				if last = strings.Repeat("x", i+1); err != nil {
					t.Error(err)
				}
			})
		}
		writing.Wait()
		if err := b.Await(t.Context(), Key{"s", "b", "k"}); err != nil || s.get("k") != last {
			t.Errorf("%v: %q, and not %q", err, s.get("k"), last)
		}
		a.Close()
		b.Close()
	})
}

// What is pending when a daemon ends, its next one uploads.
func TestAnotherDaemonGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		w := open(t, dir, "a", &link{store: s, fate: func(r *http.Request) fate {
			if r.URL.Query().Has("partNumber") {
				return fate{lost: true, later: -1}
			}
			return well(r)
		}})
		if err := w.Write(t.Context(), object("k", "hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		w.Close()
		if len(s.markers()) != 1 || s.get("k") != "" {
			t.Fatalf("%q, %q", s.markers(), s.get("k"))
		}
		if n, b, err := writes.Left(dir); n != 1 || b != 5 || err != nil {
			t.Errorf("%d objects of %d bytes are left, %v", n, b, err)
		}
		w = open(t, dir, "a", &link{store: s, fate: well})
		if err := w.Await(t.Context(), Key{"s", "b", "k"}); err != nil || s.get("k") != "hello" {
			t.Errorf("%v, %q", err, s.get("k"))
		}
		time.Sleep(time.Second)
		if left := files(t, dir); len(left) > 0 {
			t.Errorf("%q", left)
		}
		w.Close()
	})
}

// A marker whose answer is lost may come later: nothing is written then, and the marker goes again.
func TestALateMarkerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		w := open(t, dir, "a", &link{store: s, fate: func(r *http.Request) fate {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, markers+"k") {
				return fate{lost: true, later: 10 * time.Minute}
			}
			return well(r)
		}})
		if err := w.Write(t.Context(), object("k", "hello")); !errors.Is(err, ErrThrough) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		w.Close() // also another daemon
		if n, b, err := writes.Left(dir); n != 0 || b != 0 || err != nil || len(files(t, dir)) == 0 {
			t.Errorf("an abandoned write counts: %d, %d bytes, %v", n, b, err)
		}
		w = open(t, dir, "a", &link{store: s, fate: well})
		time.Sleep(2 * time.Hour)
		if left := files(t, dir); len(left) > 0 || len(s.markers()) > 0 || s.get("k") != "" {
			t.Errorf("%q, %q, %q", left, s.markers(), s.get("k"))
		}
		w.Close()
	})
}

// A full journal, a key without a marker, a condition and a store that takes no marker: the write goes through.
func TestWhatGoesThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		w := open(t, t.TempDir(), "a", &link{store: s, fate: func(r *http.Request) fate {
			if r.URL.Query().Has("partNumber") {
				return fate{refused: 500}
			}
			return well(r)
		}})
		conditional := object("k", "x")
		conditional.Header = http.Header{"If-None-Match": {"*"}}
		twice, double := object("k", "x"), object("k", "x")
		twice.Header = http.Header{"X-Amz-Checksum-Crc32": {"a"}, "X-Amz-Checksum-Crc32c": {"b"}}
		double.Header = http.Header{"X-Amz-Checksum-Crc32": {"a", "b"}}
		for what, o := range map[string]Object{
			"long": object(strings.Repeat("k", 1010), "x"), "own": object(".headstart/pending/x", "x"),
			"large": object("large", strings.Repeat("x", 1<<20)), "conditional": conditional, "two checksums": twice,
			"two of a kind": double,
		} {
			if err := w.Write(t.Context(), o); !errors.Is(err, ErrThrough) {
				t.Errorf("%s: %v", what, err)
			}
		}
		w.Close()
		ignores := ignoring{&link{store: newFakeStore(), fate: well}}
		w = open(t, t.TempDir(), "a", ignores)
		if err := w.Write(t.Context(), object("k", "x")); !errors.Is(err, ErrThrough) {
			t.Error(err)
		}
		w.Close()
	})
}

// A namespace whose functions write and write has four fifths of the journal, and another one what is left.
func TestAttackWritesOfANamespaceLeaveOthersRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, t.TempDir(), "a", &link{store: newFakeStore(), fate: func(r *http.Request) fate {
			if r.URL.Query().Has("partNumber") {
				return fate{refused: 500}
			}
			return well(r)
		}})
		n := 0
		for ; n < 200; n++ {
			if err := w.Write(t.Context(), object(strings.Repeat("k", n+1), "x")); errors.Is(err, ErrThrough) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if n != 80 {
			t.Errorf("%d writes of a namespace in a journal of 100", n)
		}
		o := object("other", "x")
		if o.Function = "another/f"; w.Write(t.Context(), o) != nil {
			t.Error("another namespace has no place")
		}
		large := object("large", strings.Repeat("x", 900<<10)) // more than is left of the namespace's bytes
		if err := w.Write(t.Context(), large); !errors.Is(err, ErrThrough) {
			t.Error(err)
		}
		w.Close()
	})
}

// ignoring is a store that does not know If-Match.
type ignoring struct{ *link }

func (i ignoring) Forward(r *http.Request) (*http.Response, error) {
	r.Header.Del("If-Match")
	return i.link.Forward(r)
}

// Of a node that does not come back the operator gives up what it has not uploaded. If it comes back after all, it uploads
// nothing over what has been written since.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		l := &link{store: s, fate: func(r *http.Request) fate {
			if r.Method == http.MethodPost && r.URL.Query().Has("uploadId") {
				return fate{refused: 500}
			}
			return well(r)
		}}
		a, b := open(t, dir, "a", l), open(t, t.TempDir(), "b", &link{store: s, fate: well})
		if err := a.Write(t.Context(), object("k", "lost")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		a.Close()
		pending, err := Pending(t.Context(), &link{store: s, fate: well}, "b", "")
		if err != nil || len(pending) != 1 || pending[0].Node != "a" || pending[0].Key != "k" || pending[0].Size != 4 {
			t.Fatalf("%+v, %v", pending, err)
		}
		if err := GiveUp(t.Context(), &link{store: s, fate: well}, "b", pending[0]); err != nil {
			t.Fatal(err)
		}
		if err := b.Write(t.Context(), object("k", "new")); err != nil {
			t.Fatal(err)
		}
		a = open(t, dir, "a", &link{store: s, fate: well})
		time.Sleep(2 * time.Hour)
		if s.get("k") != "new" || len(s.markers()) > 0 || len(files(t, dir)) > 0 {
			t.Errorf("%q, %q, %q", s.get("k"), s.markers(), files(t, dir))
		}
		a.Close()
		b.Close()
	})
}

// A client that goes away while it waits for another's write has written nothing.
func TestAWriterThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		s.objects[markers+"k"] = fakeObject{content: []byte(`{"write":"x","node":"b"}`), tag: `"x"`}
		w := open(t, dir, "a", &link{store: s, fate: well})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.Write(ctx, object("k", "hello")); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if left := files(t, dir); len(left) > 0 || len(s.uploads) > 0 {
			t.Errorf("%q, %v", left, s.uploads)
		}
		w.Close()
	})
}

// A store that is another one, or is not behind its address for a while, says nothing about markers: nothing is lost then,
// and nothing read.
func TestAnswersOfOthers(t *testing.T) {
	for name, other := range map[string]fate{
		"no account": {refused: 404, code: "XAdminUserNotFound"}, "no backend": {refused: 404}, "forbidden": {refused: 403, code: "AccessDenied"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, dir := newFakeStore(), t.TempDir()
			var back atomic.Bool
			w := open(t, dir, "a", &link{store: s, fate: func(r *http.Request) fate {
				if r.URL.Query().Has("partNumber") {
					return fate{refused: 500}
				}
				return well(r)
			}})
			if err := w.Write(t.Context(), object("k", "hello")); err != nil {
				t.Fatal(err)
			}
			w.Close()
			w = open(t, dir, "a", &link{store: s, fate: func(r *http.Request) fate {
				if !back.Load() {
					return other
				}
				return well(r)
			}})
			time.Sleep(10 * time.Minute)
			if err := w.Await(t.Context(), Key{"s", "b", "k"}); err == nil {
				t.Errorf("%s: nothing is pending", name)
			}
			if err := w.AwaitPrefix(t.Context(), Key{"s", "b", ""}); err == nil {
				t.Errorf("%s: nothing is pending in the list", name)
			}
			back.Store(true)
			time.Sleep(time.Minute)
			if s.get("k") != "hello" || len(s.markers()) > 0 || len(files(t, dir)) > 0 {
				t.Errorf("%s: %q, %q, %q", name, s.get("k"), s.markers(), files(t, dir))
			}
			w.Close()
		})
	}
}

// The store refuses an upload, as somebody has aborted it: the node begins another one.
func TestAnUploadThatCannotBeCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		w := open(t, dir, "a", &link{store: s, fate: func(r *http.Request) fate {
			if q := r.URL.Query(); r.Method == http.MethodPost && q.Get("uploadId") == "u1" {
				return fate{refused: 400, code: "InvalidRequest"}
			}
			return well(r)
		}})
		if err := w.Write(t.Context(), object("k", "hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if s.get("k") != "hello" || len(s.markers()) > 0 || len(files(t, dir)) > 0 {
			t.Errorf("%q, %q, %q", s.get("k"), s.markers(), files(t, dir))
		}
		w.Close()
	})
}

// A key that is too long for the store to have a marker has none: the store says what is wrong with the key.
func TestAKeyThatTheStoreCannotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, t.TempDir(), "a", &link{store: newFakeStore(), fate: func(*http.Request) fate { return fate{refused: 400, code: tooLong} }})
		if err := w.Await(t.Context(), Key{"s", "b", strings.Repeat("k", 500)}); err != nil {
			t.Error(err)
		}
		w.Close()
	})
}

// Another server that the store's name stands for gets nothing that was written for the one before, and ends nothing.
func TestAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right, wrong, dir := newFakeStore(), newFakeStore(), t.TempDir()
		stuck := func(r *http.Request) fate {
			if r.URL.Query().Has("partNumber") {
				return fate{refused: 500}
			}
			return well(r)
		}
		w := open(t, dir, "a", &link{store: right, fate: stuck})
		if err := w.Write(t.Context(), object("k", "hello")); err != nil {
			t.Fatal(err)
		}
		w.Close()
		server, at := "s3.example.org", &link{store: wrong, fate: well}
		w = Open(Config{Dir: dir, Node: "a", Bytes: 1 << 20, Writes: 100, Patience: time.Minute,
			Store: func(string) (Store, string, error) { return at, server, nil }, Log: slog.New(slog.DiscardHandler)})
		time.Sleep(10 * time.Minute)
		if wrong.get("k") != "" || len(files(t, dir)) != 2 {
			t.Errorf("%q, %q", wrong.get("k"), files(t, dir))
		}
		w.Close()
		w = open(t, dir, "a", &link{store: right, fate: well})
		time.Sleep(time.Minute)
		if right.get("k") != "hello" || len(files(t, dir)) > 0 {
			t.Errorf("%q, %q", right.get("k"), files(t, dir))
		}
		w.Close()
	})
}

// A store that cannot take the marker says so once, and one that is taken again and again is waited for so long.
func TestMarkersThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		answers, asked := fate{refused: 409, code: "ObjectParentIsFile"}, 0
		w := open(t, dir, "a", &link{store: s, fate: func(r *http.Request) fate {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, markers) {
				asked++
				return answers
			}
			return well(r)
		}})
		if err := w.Write(t.Context(), object("k", "x")); !errors.Is(err, ErrThrough) || asked != 1 {
			t.Errorf("%d times, %v", asked, err)
		}
		asked, answers.code = 0, conflict
		began := time.Now()
		if err := w.Write(t.Context(), object("k", "x")); !errors.Is(err, errBusy) || asked > 400 || time.Since(began) > 2*time.Minute {
			t.Errorf("%d times in %v, %v", asked, time.Since(began), err)
		}
		if len(files(t, dir)) > 0 || len(s.uploads) > 0 {
			t.Errorf("%q, %v", files(t, dir), s.uploads)
		}
		w.Close()
	})
}

// Many that write first have a bucket tried once.
func TestABucketIsTriedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		var probes atomic.Int64
		w := open(t, t.TempDir(), "a", &link{store: s, fate: func(r *http.Request) fate {
			if strings.Contains(r.URL.Path, "probe/") {
				probes.Add(1)
			}
			return well(r)
		}})
		var writing sync.WaitGroup
		for i := range 20 {
			writing.Go(func() {
				if err := w.Write(t.Context(), object(string(rune('a'+i)), "x")); err != nil {
					t.Error(err)
				}
			})
		}
		writing.Wait()
		if n := probes.Load(); n > 8 {
			t.Errorf("%d requests of probes", n)
		}
		w.Close()
	})
}

// A store that hangs is waited for as long as another node, and a little longer.
func TestAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, t.TempDir(), "a", &link{store: newFakeStore(), fate: func(*http.Request) fate { return fate{wait: time.Hour, later: -1} }})
		w.config.Patience = 10 * time.Second
		for name, ask := range map[string]func() error{
			"an object": func() error { return w.Await(t.Context(), Key{"s", "b", "k"}) },
			"a list":    func() error { return w.AwaitPrefix(t.Context(), Key{"s", "b", ""}) },
		} {
			began := time.Now()
			if err := ask(); err == nil || time.Since(began) > 10*time.Second+lastLook {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
		w.Close()
	})
}

// A bucket that takes no markers is tried once in a while, and nothing of that stays.
func TestABucketIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		w := open(t, t.TempDir(), "a", ignoring{&link{store: s, fate: well}})
		for range 3 {
			if err := w.Write(t.Context(), object("k", "x")); !errors.Is(err, ErrThrough) {
				t.Error(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait() // it looks for what earlier tries have left
		if tries := s.requests[http.MethodPut]; tries > 3 || len(s.objects) > 0 {
			t.Errorf("%d tries, %v", tries, s.objects)
		}
		time.Sleep(2 * probeAgain)
		w.config.Store = func(string) (Store, string, error) { return &link{store: s, fate: well}, "", nil }
		if err := w.Write(t.Context(), object("k", "x")); err != nil {
			t.Errorf("later: %v", err)
		}
		w.Close()
	})
}

// A directory that cannot be used has all writes go through, and nothing else fails.
func TestWithoutAJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir() + "/file"
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		w := open(t, dir, "a", &link{store: newFakeStore(), fate: well})
		if err := w.Write(t.Context(), object("k", "x")); !errors.Is(err, ErrThrough) {
			t.Error(err)
		}
		if err := w.Await(t.Context(), Key{"s", "b", "k"}); err != nil {
			t.Error(err)
		}
		w.Close()
	})
}

// Keys that stores may take for the nodes' own are these.
func TestIsOwn(t *testing.T) {
	for key, want := range map[string]bool{".headstart/pending/k": true, ".headstart/": true, ".headstart": true, "/.headstart/x": true,
		"//.headstart/x": true, "./.headstart/x": true, "a/../.headstart/x": true, ".headstart//x": true,
		".headstarts": false, "x/.headstart/y": false, "": false, "/": false, "a/.headstart": false, ".head": false} {
		if IsOwn(key) != want {
			t.Errorf("%q: %t", key, !want)
		}
	}
}

// While the daemon before still ends, its successor's writes go through. Then it goes on with what is in the journal.
func TestTheDaemonBeforeHasTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		stuck := func(r *http.Request) fate {
			if r.URL.Query().Has("partNumber") {
				return fate{refused: 500}
			}
			return well(r)
		}
		before := open(t, dir, "a", &link{store: s, fate: stuck})
		if err := before.Write(t.Context(), object("k", "hello")); err != nil {
			t.Fatal(err)
		}
		after := open(t, dir, "a", &link{store: s, fate: well})
		if err := after.Write(t.Context(), object("l", "hello")); !errors.Is(err, ErrThrough) {
			t.Errorf("two have the journal: %v", err)
		}
		before.Close()
		time.Sleep(time.Minute)
		if err := after.Write(t.Context(), object("l", "world")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if s.get("k") != "hello" || s.get("l") != "world" || len(s.markers()) > 0 || len(files(t, dir)) > 0 {
			t.Errorf("%q, %q, %q, %q", s.get("k"), s.get("l"), s.markers(), files(t, dir))
		}
		after.Close()
	})
}

func someRecord() record {
	sum := md5.Sum([]byte("hello"))
	return record{ID: strings.Repeat("a", 2*idSize), Key: Key{"s", "b", "k"}, Size: 5, MD5: sum[:], Since: time.Unix(1, 0).UTC()}
}

// Damaged records are not forgotten, and one process at a time has the journal.
func TestTheJournal(t *testing.T) {
	dir := t.TempDir()
	j, _, _, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := someRecord()
	content, err := j.create(r.ID, r.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if err := j.add(r, content); err == nil {
		t.Error("a write without its content is noted")
	}
	if _, err := content.WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	if err := j.add(r, content); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := openJournal(dir); !errors.Is(err, errLocked) {
		t.Errorf("two have it: %v", err)
	}
	j.close()
	stray := strings.Repeat("b", 2*idSize) // and what is none of ours
	if err := errors.Join(os.WriteFile(dir+"/"+stray, nil, 0o600), os.Mkdir(dir+"/lost+found", 0o700), os.WriteFile(dir+"/b"+suffix, []byte(magic), 0o600)); err != nil {
		t.Fatal(err)
	}
	j, found, damaged, err := openJournal(dir)
	if err != nil || len(found) != 1 || found[0].Key != r.Key || len(damaged) != 1 {
		t.Errorf("%v, %v, %v", found, damaged, err)
	}
	if b, err := os.ReadFile(j.content(r.ID)); err != nil || !bytes.Equal(b, []byte("hello")) {
		t.Errorf("%q, %v", b, err)
	}
	j.close()
	if left := files(t, dir); len(left) != 4 {
		t.Errorf("%q", left)
	}
}

func FuzzParse(f *testing.F) {
	b, err := someRecord().bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:len(b)-32])
	f.Add([]byte(magic + "{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := parse(b); err == nil && !bytes.HasPrefix(b, []byte(magic)) {
			t.Error("it has no magic")
		}
		r, err := parse(withSum(b))
		if err != nil {
			return
		}
		again, err := r.bytes()
		if err != nil {
			t.Fatal(err)
		}
		if same, err := parse(again); err != nil || same.ID != r.ID || same.Key != r.Key || same.Size != r.Size {
			t.Errorf("%+v was noted as %+v, %v", r, same, err)
		}
		for i := range again {
			again[i] ^= 4
			if _, err := parse(again); err == nil {
				t.Error("a damaged record was read")
			}
			again[i] ^= 4
		}
	})
}

func withSum(b []byte) []byte {
	sum := digest.OfBlock(b)
	return append(bytes.Clone(b), sum[:]...)
}

// Nodes' own uploads are told from programs': on the write's node from its beginning on, and on others once it is
// acknowledged. Each look costs few requests.
func TestOwnUploads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		slow := func(r *http.Request) fate {
			switch q := r.URL.Query(); {
			case q.Has("uploads"):
				return fate{wait: time.Second}
			case q.Has("partNumber"):
				return fate{refused: 500}
			}
			return well(r)
		}
		dir := t.TempDir()
		a, b := open(t, dir, "a", &link{store: s, fate: slow}), open(t, t.TempDir(), "b", &link{store: s, fate: well})
		theirs := Upload{"dir/k", "theirs"}
		s.uploads["theirs"] = &fakeUpload{key: theirs.Key}
		k := Key{"s", "b", "dir/k"}
		in, err := a.Begin(t.Context(), "ns/f", k, nil, 5)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond) // the bucket was tried
		own := Upload{"dir/k", "u1"}       // of which a's store has not said anything yet
		is := func(what string, w *Writer, u Upload, want bool, most int) {
			t.Helper()
			asked := func() (n int) {
				s.mu.Lock()
				defer s.mu.Unlock()
				n = s.requests["GET"]
				clear(s.requests)
				return n
			}
			asked()
			one, err := w.OwnUpload(t.Context(), Key{"s", "b", u.Key}, u.ID)
			if n := asked(); err != nil || one != want || n > most/3 {
				t.Errorf("%s: %v is own: %v, %v, with %d requests", what, u, one, err, n)
			}
			all, err := w.OwnUploads(t.Context(), "s", "b", []Upload{{"dir/other", u.ID}, u, theirs, {u.Key, "x"}})
			if n := asked(); err != nil || all[u] != want || all[theirs] || all[Upload{"dir/other", u.ID}] || n > most {
				t.Errorf("%s: %v are own: %v, %v, with %d requests", what, u, all, err, n)
			}
		}
		is("it begins", a, own, true, 1)
		is("it begins", a, theirs, false, 3)
		is("its content comes", a, own, true, 1)
		is("its content comes", b, own, false, 3)
		if _, err := in.WriteString("hello"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(in.Commit(t.Context(), nil, md5.Sum([]byte("hello"))), in.Close()); err != nil {
			t.Fatal(err)
		}
		for who, w := range map[string]*Writer{"its node": a, "another": b} {
			is(who, w, own, true, 3)
			is(who, w, Upload{own.Key, "/u1/"}, true, 3) // the same path
			is(who, w, theirs, false, 3)
			is(who, w, Upload{strings.Repeat("k", 1010), "u1"}, false, 2)
		}
		a.Close()
		a = open(t, dir, "a", &link{store: s, fate: slow})
		is("its next daemon", a, own, true, 6) // which looks for its marker itself
		a.Close()
		b.Close()
	})
}

// A daemon that starts waits for the list of stores without a word, and warns of a store which the list does not have.
func TestTheListOfStoresComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newFakeStore(), t.TempDir()
		w := open(t, dir, "a", &link{store: s, fate: func(r *http.Request) fate {
			if r.URL.Query().Has("partNumber") {
				return fate{refused: 500}
			}
			return well(r)
		}})
		if err := w.Write(t.Context(), object("k", "hello")); err != nil {
			t.Fatal(err)
		}
		w.Close()
		var log bytes.Buffer
		var err atomic.Pointer[error]
		notYet, lacks := fmt.Errorf("the store: %w", ErrNoList), errors.New("the list lacks the store")
		err.Store(&notYet)
		w = Open(Config{Dir: dir, Node: "a", Bytes: 1 << 20, Writes: 100, Patience: time.Minute,
			Store: func(string) (Store, string, error) {
				return &link{store: s, fate: well}, "s3.example.com", *err.Load()
			}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		time.Sleep(time.Minute)
		synctest.Wait()
		if log.Len() > 0 {
			t.Errorf("it says %s", log.String())
		}
		err.Store(&lacks)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), lacks.Error()) {
			t.Errorf("it says %q", log.String())
		}
		err.Store(new(error))
		time.Sleep(time.Minute)
		if s.get("k") != "hello" {
			t.Error("it is not uploaded")
		}
		w.Close()
	})
}

// What daemons that were killed have left of their tries goes with a later daemon's first write. What may still be under
// way stays.
func TestOldTriesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := newFakeStore(), &link{}
		*l = link{store: s, fate: well}
		b := bucket{l, "b"}
		put := func(key string) {
			if a, err := b.small(t.Context(), http.MethodPut, key, nil, nil, []byte("x")); err != nil || !a.ok() {
				t.Fatal(a.status, err)
			}
		}
		for i := range sweepMost + 1 {
			put(tries + fmt.Sprintf("old%03d", i))
		}
		put(Own + "other")
		put("k")
		time.Sleep(tryAge)
		put(tries + "under-way")
		for i, want := range []int{2, 1, 1} { // one is under way, and there are more than one sweep removes
			w := open(t, t.TempDir(), "a", l)
			if err := w.Write(t.Context(), object(fmt.Sprint("k", i), "hello")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			w.Close()
			left := 0
			for key := range s.objects {
				if strings.HasPrefix(key, tries) {
					left++
				}
			}
			if left != want {
				t.Errorf("%d tries are left by daemon %d, and not %d", left, i, want)
			}
		}
		if s.get(tries+"under-way") == "" || s.get(Own+"other") == "" || s.get("k") == "" {
			t.Error("more than old tries has gone")
		}
	})
}
