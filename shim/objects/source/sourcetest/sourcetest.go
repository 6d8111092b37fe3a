// Package sourcetest holds what every source.Source must do, as tests, and a store in
// memory that does it.
package sourcetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/headstart-mesh/headstart/shim/objects/source"
	"github.com/headstart-mesh/headstart/shim/problem"
)

// Store is a store with an adapter in front, as the suite needs it.
type Store struct {
	Source source.Source
	// Scheme is the one of the store's references.
	Scheme string
	// Bucket exists, is empty, and may be read through Source.
	Bucket string
	// Part is the largest number of bytes that the adapter asks the store for at once.
	Part int64
	// Put creates or replaces an object, Delete removes it.
	Put    func(ref source.Reference, contentType string, content []byte) error
	Delete func(ref source.Reference) error
	// PutUnsized is Put for an object whose size the store does not tell beforehand; nil if
	// it always does.
	PutUnsized func(ref source.Reference, contentType string, content []byte) error
	// Untyped says that the store keeps no content types: all are OctetStream.
	Untyped bool
	// Once says that an object comes to the source once, like a request's body: Stat has
	// nothing to ask, and nobody is refused.
	Once bool
	// Secret writes the node's secret for the store: the right one, or a wrong one under the
	// same id or user. nil if the store asks for none.
	Secret func(right bool) error
	// Close ends the adapter; afterwards no goroutine of it is left.
	Close func()
}

// OctetStream is the content type of what has none (RFC 2046, section 4.5.1).
const OctetStream = "application/octet-stream"

// Run runs the suite; open is called once per test.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for name, test := range map[string]func(*testing.T, Store){
		"sizes":           sizes,
		"missing":         missing,
		"replaced":        replaced,
		"deleted":         deleted,
		"cancelled":       cancelled,
		"deadline":        deadline,
		"begin refuses":   beginRefuses,
		"writer fails":    writerFails,
		"many at a time":  many,
		"hostile content": keys,
		"not allowed":     notAllowed,
		"held":            held,
		"held, replaced":  heldReplaced,
		"kept":            kept,
		"unsized":         unsized,
		"secret":          secret,
		"lists":           lists,
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			store := open(t)
			test(t, store)
			store.Close()
			goleak.VerifyNone(t, before)
		})
	}
}

// sizes: every byte arrives once begin has told size and type, whatever the size.
func sizes(t *testing.T, store Store) {
	for _, size := range []int64{0, 1, store.Part - 1, store.Part, store.Part + 1, 5*store.Part + 3} {
		t.Run(strconv.FormatInt(size, 10), func(t *testing.T) {
			ref, content := store.put(t, size)
			sink := &Sink{}
			if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
				t.Fatal(err)
			}
			sink.ended(t)
			if sink.begins != 1 || sink.Object.Size != size || sink.Object.ContentType != store.contentType() || sink.Object.Version == "" {
				t.Errorf("begin was called %d times, last with %+v", sink.begins, sink.Object)
			}
			if !bytes.Equal(sink.Content, content) {
				t.Error("the content is another")
			}
		})
	}
}

func missing(t *testing.T, store Store) {
	for _, ref := range []source.Reference{store.ref("none"), store.ref("none/at/all")} {
		sink := &Sink{}
		err := store.Source.Fetch(t.Context(), ref, "", sink.Begin)
		wantProblem(t, err, "InputNotFound", http.StatusNotFound)
		sink.ended(t)
		if sink.begins != 0 {
			t.Error("begin was called")
		}
	}
}

// replaced: an object that gets new content of the same size while it is read is never
// a mixture of both.
func replaced(t *testing.T, store Store) {
	ref, content := store.put(t, 20*store.Part)
	sink := &Sink{OnBegin: func() error { return store.Put(ref, contentType, random(20*store.Part)) }}
	err := store.Source.Fetch(t.Context(), ref, "", sink.Begin)
	sink.ended(t)
	if err != nil {
		wantProblem(t, err, "InputChanged", http.StatusBadGateway)
	} else if !bytes.Equal(sink.Content, content) {
		t.Error("the content is neither the old one nor is the change reported")
	}
}

func deleted(t *testing.T, store Store) {
	ref, content := store.put(t, 20*store.Part)
	sink := &Sink{OnBegin: func() error { return store.Delete(ref) }}
	err := store.Source.Fetch(t.Context(), ref, "", sink.Begin)
	sink.ended(t)
	if err != nil {
		wantProblem(t, err, "InputChanged", http.StatusBadGateway)
	} else if !bytes.Equal(sink.Content, content) {
		t.Error("the content is another and the deletion is not reported")
	}
}

// cancelled: Fetch returns, and has stopped writing by then.
func cancelled(t *testing.T, store Store) {
	ref, _ := store.put(t, 20*store.Part)
	for name, sinkOf := range map[string]func(cancel func()) *Sink{
		"before begin": func(cancel func()) *Sink { cancel(); return &Sink{} },
		"in begin":     func(cancel func()) *Sink { return &Sink{OnBegin: func() error { cancel(); return nil }} },
		"in a write":   func(cancel func()) *Sink { return &Sink{OnWrite: func() error { cancel(); return nil }} },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sink := sinkOf(cancel)
			err := store.Source.Fetch(ctx, ref, "", sink.Begin)
			sink.ended(t)
			wantProblem(t, err, "InputCancelled", http.StatusServiceUnavailable)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v does not wrap the context's error", err)
			}
		})
	}
}

func deadline(t *testing.T, store Store) {
	ref, _ := store.put(t, 20*store.Part)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	sink := &Sink{}
	err := store.Source.Fetch(ctx, ref, "", sink.Begin)
	sink.ended(t)
	wantProblem(t, err, "StoreTimeout", http.StatusGatewayTimeout)
}

func beginRefuses(t *testing.T, store Store) {
	refused := errors.New("refused")
	for _, size := range []int64{0, 1, 20 * store.Part} {
		ref, _ := store.put(t, size)
		sink := &Sink{OnBegin: func() error { return refused }}
		if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != refused {
			t.Errorf("size %d: begin's error comes back as %v", size, err)
		}
		sink.ended(t)
		if sink.begins != 1 {
			t.Errorf("size %d: begin was called %d times", size, sink.begins)
		}
	}
}

func writerFails(t *testing.T, store Store) {
	full := errors.New("full")
	ref, _ := store.put(t, 20*store.Part)
	sink := &Sink{OnWrite: func() error { return full }}
	if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != full {
		t.Errorf("the writer's error comes back as %v", err)
	}
	sink.ended(t)
}

func many(t *testing.T, store Store) {
	const fetches = 8
	ref, content := store.put(t, 3*store.Part)
	var group sync.WaitGroup
	for range fetches {
		group.Go(func() {
			sink := &Sink{}
			if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
				t.Error(err)
			}
			sink.ended(t)
			if !bytes.Equal(sink.Content, content) {
				t.Error("the content is another")
			}
		})
	}
	group.Wait()
}

// keys: a key that means something to a URL is a key like any other.
func keys(t *testing.T, store Store) {
	for _, key := range []string{"a b+c", "a?b=c&d", "a#b", "a%2e%2e", "Größe/…", `q"uote'`, "dir/file"} {
		want := random(10)
		if err := store.Put(store.ref(key), contentType, want); err != nil {
			t.Fatal(err)
		}
		sink := &Sink{}
		if err := store.Source.Fetch(t.Context(), store.ref(key), "", sink.Begin); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		sink.ended(t)
		if !bytes.Equal(sink.Content, want) {
			t.Errorf("%q: the content is another", key)
		}
	}
}

// notAllowed: what the operator has not listed is not asked for.
func notAllowed(t *testing.T, store Store) {
	if store.Once {
		return
	}
	for _, ref := range []source.Reference{
		{Scheme: store.Scheme, Bucket: "other", Key: "k"}, {Scheme: store.Scheme, Bucket: store.Bucket + "x", Key: "k"},
		{Scheme: "other", Bucket: store.Bucket, Key: "k"}, {},
	} {
		sink := &Sink{}
		wantProblem(t, store.Source.Fetch(t.Context(), ref, "", sink.Begin), "StoreNotAllowed", http.StatusForbidden)
		if sink.begins != 0 {
			t.Error("begin was called")
		}
	}
}

// held: while an object is read and stays as it is, who holds its version is told so, and gets no bytes.
func held(t *testing.T, store Store) {
	if store.Once {
		return
	}
	ref, content := store.put(t, 20*store.Part)
	var once sync.Once
	sink := &Sink{}
	sink.OnWrite = func() error {
		once.Do(func() {
			for range 2 {
				store.unchanged(t, ref, sink.Object.Version)
			}
		})
		return nil
	}
	if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
		t.Fatal(err)
	}
	sink.ended(t)
	if !bytes.Equal(sink.Content, content) {
		t.Error("the content is another")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := store.Source.Fetch(ctx, ref, sink.Object.Version, (&Sink{}).Begin)
	wantProblem(t, err, "InputCancelled", http.StatusServiceUnavailable)
}

// unchanged: who holds the object's version is told so, and gets no bytes.
func (s Store) unchanged(t *testing.T, ref source.Reference, version string) {
	t.Helper()
	again := &Sink{}
	err := s.Source.Fetch(t.Context(), ref, version, again.Begin)
	if _, same := errors.AsType[*source.Unchanged](err); !same || again.begins != 0 {
		t.Errorf("who holds version %q gets %v, and begin is called %d times", version, err, again.begins)
	}
}

// heldReplaced: who holds another version than the object's gets the object, from a fetch that may be under
// way and of another version, or is told that there is none any more.
func heldReplaced(t *testing.T, store Store) {
	if store.Once {
		return
	}
	ref, _ := store.put(t, 20*store.Part)
	var once sync.Once
	sink := &Sink{}
	sink.OnWrite = func() error {
		once.Do(func() {
			newer := random(3 * store.Part)
			if err := store.Put(ref, contentType, newer); err != nil {
				t.Error(err)
			}
			other := &Sink{}
			err := store.Source.Fetch(t.Context(), ref, sink.Object.Version, other.Begin)
			if err != nil || other.Object.Version == sink.Object.Version || !bytes.Equal(other.Content, newer) {
				t.Errorf("Fetch gives %+v, %v of another object than begin was told of: %+v", other.Object, err, sink.Object)
			}
			if err := store.Delete(ref); err != nil {
				t.Error(err)
			}
			err = store.Source.Fetch(t.Context(), ref, sink.Object.Version, (&Sink{}).Begin)
			wantProblem(t, err, "InputNotFound", http.StatusNotFound)
		})
		return nil
	}
	if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
		wantProblem(t, err, "InputChanged", http.StatusBadGateway)
	}
	sink.ended(t)
}

// kept: of an object that may be kept its store says later as well whether a version is the object's still,
// whatever its size.
func kept(t *testing.T, store Store) {
	for _, size := range []int64{0, 1, 3 * store.Part} {
		ref, _ := store.put(t, size)
		sink := &Sink{}
		if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
			t.Fatal(err)
		}
		sink.ended(t)
		if sink.Object.Fresh < 0 || store.Once {
			continue
		}
		store.unchanged(t, ref, sink.Object.Version)
		other := random(size + 1)
		if err := store.Put(ref, contentType, other); err != nil {
			t.Fatal(err)
		}
		newer := &Sink{}
		err := store.Source.Fetch(t.Context(), ref, sink.Object.Version, newer.Begin)
		newer.ended(t)
		if err != nil || !bytes.Equal(newer.Content, other) {
			t.Errorf("size %d: of a changed object %v", size, err)
		}
	}
}

// secret: a changed secret counts from the next request on, whether it was wrong or becomes
// so, whatever a client remembers of the one before.
func secret(t *testing.T, store Store) {
	if store.Secret == nil {
		return
	}
	ref, content := store.put(t, 3*store.Part)
	for _, right := range []bool{true, false, true, false, true} {
		if err := store.Secret(right); err != nil {
			t.Fatal(err)
		}
		sink := &Sink{}
		err := store.Source.Fetch(t.Context(), ref, "", sink.Begin)
		sink.ended(t)
		if !right {
			wantProblem(t, err, "StoreForbidden", http.StatusBadGateway)
			continue
		}
		if err != nil || !bytes.Equal(sink.Content, content) {
			t.Errorf("with the right secret: %v", err)
		}
	}
}

// unsized: an object whose size nobody knows arrives whole and in order.
func unsized(t *testing.T, store Store) {
	if store.PutUnsized == nil {
		return
	}
	for _, size := range []int64{0, 1, store.Part, 5*store.Part + 3} {
		ref, content := store.ref("unsized"), random(size)
		if err := store.PutUnsized(ref, contentType, content); err != nil {
			t.Fatal(err)
		}
		sink := &Sink{inOrder: true}
		if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
			t.Errorf("size %d: %v", size, err)
		}
		sink.ended(t)
		if sink.begins != 1 || sink.Object.Size != -1 || sink.Object.ContentType != contentType {
			t.Errorf("size %d: begin was called %d times, last with %+v", size, sink.begins, sink.Object)
		}
		if !bytes.Equal(sink.Content, content) {
			t.Errorf("size %d: the content is another", size)
		}
	}
}

const contentType = "video/x-motion-jpeg"

func (s Store) ref(key string) source.Reference {
	return source.Reference{Scheme: s.Scheme, Bucket: s.Bucket, Key: key}
}

func (s Store) contentType() string {
	if s.Untyped {
		return OctetStream
	}
	return contentType
}

func (s Store) put(t *testing.T, size int64) (source.Reference, []byte) {
	t.Helper()
	return s.putAs(t, "object-"+strconv.FormatInt(size, 10), size)
}

func (s Store) putAs(t *testing.T, key string, size int64) (source.Reference, []byte) {
	t.Helper()
	ref, content := s.ref(key), random(size)
	if err := s.Put(ref, contentType, content); err != nil {
		t.Fatal(err)
	}
	return ref, content
}

// random returns bytes of which no two blocks are alike, so that one in the wrong
// place shows.
func random(size int64) []byte {
	content := make([]byte, size)
	seed := [32]byte{}
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	// It never returns an error.
	_, _ = rand.NewChaCha8(seed).Read(content)
	return content
}

func wantProblem(t *testing.T, err error, title string, status int) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Title != title || p.Status != status {
		t.Errorf("the error is %v, want %s with status %d", err, title, status)
	}
}
