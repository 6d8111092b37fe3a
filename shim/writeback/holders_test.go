package writeback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// holding is what becomes of a question to another node.
type holding int

const (
	away     holding = iota // it cannot be reached
	breaking                // it breaks off midway
	lying                   // it sends something else
	there                   // it answers; so do all above
)

// fakeHolders ask the Writers of other nodes as shim/peers does.
type fakeHolders struct {
	node func(name string) *Writer
	how  func() holding
}

// asking is of those who ask one node alone.
func asking(w *Writer, how holding) *fakeHolders {
	return &fakeHolders{func(string) *Writer { return w }, func() holding { return how }}
}

func (f *fakeHolders) Written(ctx context.Context, k Key, m Marker, held string, begin source.Begin,
	instead func(context.Context, source.Begin) error,
) error {
	how := f.how()
	w := f.node(m.Node)
	if how == away || w == nil {
		return instead(ctx, begin)
	}
	h, err := w.HeldWrite(k, m.ID)
	if h == nil || err != nil || h.Version != m.Tag || h.Size != m.Size {
		return instead(ctx, begin)
	}
	defer h.Close()
	if held == m.Tag {
		return &source.Unchanged{}
	}
	content, err := io.ReadAll(h)
	if err != nil {
		return err
	}
	to, err := begin(h.Object)
	if err != nil {
		return err
	}
	half := len(content) / 2
	if _, err = to.WriteAt(content[:half], 0); err != nil {
		return err
	}
	switch how {
	case breaking:
		return instead(ctx, func(o source.Object) (io.WriterAt, error) {
			if o.Version != m.Tag {
				return nil, errors.New("the object has changed")
			}
			return from{to, int64(half)}, nil
		})
	case lying:
		content[half] ^= 1
	}
	_, err = to.WriteAt(content[half:], int64(half))
	return err
}

// from writes what is behind an offset.
type from struct {
	io.WriterAt
	at int64
}

func (f from) WriteAt(p []byte, at int64) (int, error) {
	skip := min(max(0, f.at-at), int64(len(p)))
	n, err := f.WriterAt.WriteAt(p[skip:], at+skip)
	return n + int(skip), err
}

// sink is where an object goes.
type sink struct{ bytes.Buffer }

func (s *sink) WriteAt(p []byte, at int64) (int, error) {
	if int(at) != s.Len() {
		return 0, errors.New("bytes are written twice, or not in order")
	}
	return s.Write(p)
}

// fetch reads an object as shim/stores does; empty: there is none.
func fetch(ctx context.Context, w *Writer, k Key, l Store) (string, error) {
	var got sink
	begin := func(source.Object) (io.WriterAt, error) { return &got, nil }
	err := w.Fetch(ctx, k, "", begin, func(ctx context.Context, begin source.Begin) error {
		a, err := bucket{l, k.Bucket}.small(ctx, http.MethodGet, k.Key, nil, nil, nil)
		switch {
		case err != nil:
			return err
		case a.status == http.StatusNotFound:
			return errNone
		case !a.ok():
			return a.err("reading")
		}
		to, err := begin(source.Object{Size: int64(len(a.body)), Version: a.header.Get("Etag")})
		if err == nil {
			_, err = to.WriteAt(a.body, 0)
		}
		return err
	})
	if got.Len() == 0 && errors.Is(err, errNone) {
		err = nil
	}
	return got.String(), err
}

var errNone = errors.New("there is no such object")

// noParts lets no upload end.
func noParts(r *http.Request) fate {
	if r.URL.Query().Has("partNumber") {
		return fate{refused: 503}
	}
	return well(r)
}

// A reader on another node has an object from its writer while the upload is held up. If it does not get it there, it
// waits for the store as if there were nobody to ask, and gets nothing older, and nothing wrong.
func TestAReaderAsksTheWriter(t *testing.T) {
	for name, c := range map[string]struct {
		how   holding
		waits bool
		err   bool
	}{
		"there": {how: there}, "away": {how: away, waits: true}, "breaking off": {how: breaking, waits: true},
		"lying": {how: lying, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, gate := newFakeStore(), make(chan struct{})
				l := &link{store: s, fate: well}
				held := &link{store: s, fate: func(r *http.Request) fate {
					if r.URL.Query().Has("partNumber") {
						<-gate
					}
					return well(r)
				}}
				if a, err := ask(l, http.MethodPut, "k", "older"); err != nil || !a.ok() {
					t.Fatal(err)
				}
				a := open(t, t.TempDir(), "a", held)
				b := openAmong(t, t.TempDir(), "b", l, asking(a, c.how))
				o := object("k", strings.Repeat("hello", 100))
				if err := a.Write(t.Context(), o); err != nil {
					t.Fatal(err)
				}
				began, opens := time.Now(), time.AfterFunc(10*time.Second, func() { close(gate) })
				got, err := fetch(t.Context(), b, o.Key, l)
				took := time.Since(began)
				if (err != nil) != c.err || !c.err && got != o.Content || c.err && len(got) == len(o.Content) {
					t.Errorf("%q, %v", got, err)
				}
				if waited := took > 9*time.Second; waited != c.waits {
					t.Errorf("it took %v", took)
				}
				nodes, stores := b.fromNodes.Load(), b.fromStore.Load()
				if c.err != (nodes+stores == 0) || c.waits != (stores == 1) {
					t.Errorf("%d from nodes, %d from the store", nodes, stores)
				}
				if opens.Stop() {
					close(gate)
				}
				if err := b.Await(t.Context(), o.Key); err != nil {
					t.Error(err)
				}
				a.Close()
				b.Close()
			})
		})
	}
}

// A reader that has the object already gets no bytes of it, nor does one that asks what it is.
func TestAReaderHasWhatItsWriterHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		l := &link{store: s, fate: well}
		a := open(t, t.TempDir(), "a", &link{store: s, fate: noParts})
		b := openAmong(t, t.TempDir(), "b", l, asking(a, there))
		o := object("k", "hello")
		if err := a.Write(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		err := b.Fetch(t.Context(), o.Key, o.Tag(), nil, nil)
		if same := (*source.Unchanged)(nil); !errors.As(err, &same) {
			t.Error(err)
		}
		about, err := b.Describe(t.Context(), o.Key)
		if err != nil || about == nil || about.Version != o.Tag() || about.Size != 5 {
			t.Errorf("%+v, %v", about, err)
		}
		if about, err := b.Describe(t.Context(), Key{"s", "b", "none"}); err != nil || about != nil {
			t.Errorf("%+v, %v", about, err)
		}
		a.Close()
		b.Close()
	})
}

// One patience is for the node and for the wait together.
func TestAReaderAsksAndWaitsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		l := &link{store: s, fate: well}
		a := open(t, t.TempDir(), "a", &link{store: s, fate: noParts})
		for _, takes := range []time.Duration{0, 50 * time.Second, 3 * time.Minute} {
			b := openAmong(t, t.TempDir(), "b", l, &fakeHolders{func(string) *Writer { return nil },
				func() holding { time.Sleep(takes); return away }})
			o := object("k", "hello")
			if takes == 0 {
				if err := a.Write(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			_, err := fetch(t.Context(), b, o.Key, l)
			if p := (*PendingError)(nil); !errors.As(err, &p) || p.Marker.Node != "a" {
				t.Errorf("after %v: %v", takes, err)
			}
			if took := time.Since(began); took > max(takes, time.Minute)+time.Second {
				t.Errorf("after %v it takes %v", takes, took)
			}
			b.Close()
		}
		a.Close()
	})
}

// Of the marker of an abandoned write, which comes late, a reader on another node gets nothing but what the store has.
func TestAReaderDoesNotGetAnAbandonedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		l := &link{store: s, fate: well}
		var first atomic.Bool
		a := open(t, t.TempDir(), "a", &link{store: s, fate: func(r *http.Request) fate {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, markers+"k") && !first.Swap(true) {
				return fate{lost: true, later: time.Second}
			}
			return well(r)
		}})
		b := openAmong(t, t.TempDir(), "b", l, asking(a, there))
		o := object("k", "abandoned")
		if err := a.Write(t.Context(), o); !errors.Is(err, ErrThrough) {
			t.Fatal(err)
		}
		if _, err := ask(l, http.MethodPut, "k", "later"); err != nil {
			t.Fatal(err)
		}
		for len(s.markers()) == 0 {
			time.Sleep(time.Millisecond)
		}
		if got, err := fetch(t.Context(), b, o.Key, l); got != "later" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if n := b.fromNodes.Load(); n > 0 {
			t.Error("the node has brought it")
		}
		a.Close()
		b.Close()
		s.working.Wait()
	})
}

// A node hands out the write that is asked for, and no other one of the object, as long as the store cannot have it.
func TestTheWriteThatIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, completes := newFakeStore(), make(chan struct{})
		a := open(t, t.TempDir(), "a", &link{store: s, fate: func(r *http.Request) fate {
			switch q := r.URL.Query(); {
			case q.Has("partNumber"):
				return fate{wait: 500 * time.Millisecond}
			case r.Method == http.MethodPost && q.Has("uploadId"):
				<-completes
			}
			return well(r)
		}})
		o := object("k", "hello")
		if err := a.Write(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		m, err := bucket{&link{store: s, fate: well}, "b"}.marked(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		has := func(id string) bool {
			t.Helper()
			h, err := a.HeldWrite(o.Key, id)
			if err != nil {
				t.Error(err)
			}
			if h == nil {
				return false
			}
			return h.Close() == nil
		}
		if !has(m.ID) || has("") || has(strings.Repeat("0", 2*idSize)) {
			t.Error("another write than the one that is asked for")
		}
		time.Sleep(time.Second) // by then it is being completed
		if has(m.ID) || held(t, a, "k") != "" || a.Has(o.Key) {
			t.Error("a write that the store may have")
		}
		close(completes)
		if err := a.Await(t.Context(), o.Key); err != nil || has(m.ID) {
			t.Error(err)
		}
		a.Close()
	})
}
