package tree_test

import (
	"path/filepath"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/tree"
)

// An operator sees versions, has one stay over a restart, and removes those that no pod has.
func TestOperator(t *testing.T) {
	s, dir := newStore(), t.TempDir()
	set, err := tree.Open(filepath.Join(dir, "volumes"), s, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, made, err := set.Version(t.Context(), llama, "u1", "models"); err != nil || !made {
		t.Fatal(made, err)
	}
	if _, made, err := set.Version(t.Context(), llama, "", ""); err != nil || made {
		t.Error(made, err)
	}
	list := func() tree.Held {
		t.Helper()
		all, err := set.List()
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	h := list()
	if h.Namespace != llama.Namespace || h.Store != llama.Store || h.Prefix != llama.Prefix.String() || h.Bytes != 13 || h.Objects != 4 || h.Pods != 1 || h.Pinned {
		t.Errorf("%+v", h)
	}
	if err := set.Pin(h.At, true); err != nil {
		t.Fatal(err)
	}
	if dropped, err := set.DropOne(h.At); err != nil || dropped {
		t.Errorf("a pod loses its volume: %v", err)
	}
	if err := set.Pin(h.At, true); err != nil {
		t.Fatal(err)
	}
	set.Close()
	set = open(t, dir, s)
	if err := set.Sweep(func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	if h := list(); !h.Pinned || h.Pods != 0 {
		t.Errorf("after a restart %+v", h)
	}
	if dropped, err := set.Drop(); err != nil || dropped {
		t.Errorf("what is pinned goes for room: %v", err)
	}
	if dropped, err := set.DropOne(h.At); err != nil || !dropped {
		t.Errorf("it stays: %v", err)
	}
	if all, err := set.List(); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
