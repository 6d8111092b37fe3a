package pods_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/staging/stagingtest"
)

func destinations(d *nodeapi.DescribeResponse) (all []string) {
	for _, m := range d.GetMounts() {
		all = append(all, m.GetDestination())
	}
	return all
}

// On a node that buffers in memory, all containers of a pod see one directory there, and it
// goes with the pod.
func TestInputsInMemory(t *testing.T) {
	r := newRig(t)
	var path string
	r.memory, path = stagingtest.Memory(t)
	r.Close()
	r.open()
	for _, container := range []string{"a", "b"} {
		d := r.described(container, pod("fire-x", container))
		if !slices.Equal(destinations(d), []string{"/headstart/input", "/headstart/memory"}) || !d.GetMounts()[1].GetReadOnly() {
			t.Fatalf("described as %v", d)
		}
		if info, err := os.Stat(d.GetMounts()[1].GetSource()); err != nil || info.Mode().Perm() != 0o755 || d.GetMounts()[1].GetSource() != filepath.Join(path, one) {
			t.Errorf("it is at %s: %v, %v", d.GetMounts()[1].GetSource(), info, err)
		}
	}
	r.has(ready("10.0.0.1:80"))
	dir, _ := r.Inputs(one)
	if dir == nil || dir.Memory == nil {
		t.Fatalf("inputs are at %+v", dir)
	}
	if err := dir.Memory.WriteFile("request", nil, 0o444); err != nil {
		t.Fatal(err)
	}

	// A killed daemon's inputs go.
	r.Close()
	r.open()
	if left := names(t, filepath.Join(path, one)); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	r.has(ready("10.0.0.1:80"))
	for _, container := range []string{"a", "b"} {
		r.gone(container, pod("fire-x", container))
	}
	r.has()
	if left := append(names(t, path), names(t, r.dir)...); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// The containers of a pod whose first one was started without it have none either: that one
// would see names that lead nowhere.
func TestAPodFromBeforeMemory(t *testing.T) {
	r := newRig(t)
	r.described("a", pod("fire-x", "a"))
	var path string
	r.memory, path = stagingtest.Memory(t)
	r.Close()
	r.open()
	if d := r.described("b", pod("fire-x", "b")); !slices.Equal(destinations(d), []string{"/headstart/input"}) {
		t.Errorf("described as %v", d)
	}
	r.has(ready("10.0.0.1:80"))
	if dir, _ := r.Inputs(one); dir == nil || dir.Memory != nil {
		t.Errorf("inputs are at %+v", dir)
	}
	if made := names(t, path); len(made) != 0 {
		t.Errorf("made: %v", made)
	}
}

// What a kill left in memory without the pod's own directory goes with the sweep.
func TestMemoryIsSwept(t *testing.T) {
	r := newRig(t)
	var path string
	r.memory, path = stagingtest.Memory(t)
	r.Close()
	r.open()
	r.described("a", pod("fire-x", "a"))
	if err := os.MkdirAll(filepath.Join(path, "default_fire-y_u-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.has()
	if left := names(t, path); !slices.Equal(left, []string{one}) {
		t.Errorf("left: %v", left)
	}
}
