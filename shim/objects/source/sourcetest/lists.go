package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/objects/source"
)

// lists: a list has every object below the prefix and no other, as Fetch finds it.
func lists(t *testing.T, store Store) {
	lister, ok := store.Source.(source.Lister)
	if !ok {
		return // its store has none
	}
	names := []string{"a b+c", "a?b=c&d", "a#b", "a%2e%2e", "Größe/…", `q"uote'`, "7b/weights", "empty"}
	want := map[string]source.Object{}
	for i, name := range names {
		ref := store.ref("llama/" + name)
		if err := store.Put(ref, contentType, random(int64(i+1)%8)); err != nil {
			t.Fatal(err)
		}
		sink := &Sink{}
		if err := store.Source.Fetch(t.Context(), ref, "", sink.Begin); err != nil {
			t.Fatal(err)
		}
		want[name] = source.Object{Size: sink.Object.Size, Version: sink.Object.Version}
	}
	for _, other := range []string{"llama2/a", "llam", "other"} {
		if err := store.Put(store.ref(other), contentType, random(1)); err != nil {
			t.Fatal(err)
		}
	}
	for prefix, count := range map[string]int{"llama/": len(names), "llama/7b/": 1, "": len(names) + 3, "nothing/": 0} {
		got := map[string]source.Object{}
		err := lister.List(t.Context(), store.ref(prefix), func(name string, o source.Object) error {
			o.ContentType = ""
			got[strings.TrimPrefix(prefix+name, "llama/")] = o
			return nil
		})
		// All of the bucket has what other tests left as well.
		if err != nil || len(got) < count || prefix != "" && len(got) > count {
			t.Errorf("%q has %d objects, %v", prefix, len(got), err)
		}
		if d := cmp.Diff(want, got); prefix == "llama/" && d != "" {
			t.Errorf("%q: %s", prefix, d)
		}
	}
	enough := errors.New("enough")
	calls := 0
	err := lister.List(t.Context(), store.ref(""), func(string, source.Object) error { calls++; return enough })
	if !errors.Is(err, enough) || calls != 1 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	ignore := func(string, source.Object) error { return nil }
	other := source.Reference{Scheme: store.Scheme, Bucket: "other"}
	wantProblem(t, lister.List(t.Context(), other, ignore), "StoreNotAllowed", http.StatusForbidden)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantProblem(t, lister.List(ctx, store.ref(""), ignore), "InputCancelled", http.StatusServiceUnavailable)
}

// List implements source.Lister.
func (m *Memory) List(ctx context.Context, prefix source.Reference, each func(string, source.Object) error) error {
	if m.Allowed != nil && !m.Allowed(prefix) {
		return source.NotAllowed("memory", prefix)
	}
	if ctx.Err() != nil {
		return source.Ended(ctx, "memory", prefix)
	}
	m.mu.Lock()
	found := map[string]source.Object{}
	for ref, o := range m.objects {
		if name, ok := strings.CutPrefix(fmt.Sprint(ref), fmt.Sprint(prefix)); ok {
			found[name] = o.Object
		}
	}
	m.mu.Unlock()
	for name, o := range found {
		if err := each(name, o); err != nil {
			return err
		}
	}
	return nil
}
