package tree_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headstart-mesh/headstart/shim/objects/tree"
	"github.com/headstart-mesh/headstart/shim/problem"
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

// Pinned volumes leave half of the disk to others.
func TestPinnedVolumesLeaveRoom(t *testing.T) {
	dir := t.TempDir()
	set := open(t, dir, newStore())
	words := llama
	words.Prefix.Key = "words/"
	for _, of := range []tree.Prefix{llama, words} {
		if _, _, err := set.Version(t.Context(), of, "", ""); err != nil {
			t.Fatal(err)
		}
	}
	all, err := set.List()
	if err != nil || len(all) != 2 || set.Pin(all[0].At, true) != nil {
		t.Fatalf("%+v, %v", all, err)
	}
	about := filepath.Join(dir, "volumes", all[1].At, "about.json")
	if err := os.WriteFile(about, []byte(`{"bytes":1000000000000000000}`), 0o600); err != nil {
		t.Fatal(err)
	}
	err = set.Pin(all[1].At, true)
	if problem.ReasonOf(err) != "CachePinsFull" || !strings.Contains(err.Error(), "those of 13 are pinned, and this one has 1000000000000000000") {
		t.Error(err)
	}
	if all, err := set.List(); err != nil || !all[0].Pinned || all[1].Pinned {
		t.Errorf("%+v, %v", all, err)
	}
}
