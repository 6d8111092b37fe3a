package instance_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/shim/staging/stagingtest"
)

// mounts are the places that an instance's sandbox sees.
func (r *rig) mounts(id string) map[string]string {
	r.t.Helper()
	d, ok := r.set.Describe(id, "")
	if !ok {
		r.t.Fatalf("%s is not known", id)
	}
	mounts := map[string]string{}
	for _, m := range d.GetMounts() {
		if !m.GetReadOnly() {
			r.t.Errorf("%s can be written to", m.GetDestination())
		}
		mounts[m.GetDestination()] = m.GetSource()
	}
	return mounts
}

// On a node that buffers in memory, an instance sees a directory there as well, from its
// start to its end.
func TestInputsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var path string
		r.memory, path = stagingtest.Memory(t)
		r.restart()
		r.start("one", r.serving()...)
		r.ready("one")
		source := filepath.Join(path, "one")
		want := map[string]string{"/headstart/input": filepath.Join(r.path, "one", "input"), "/headstart/memory": source}
		if diff := cmp.Diff(want, r.mounts("one")); diff != "" {
			t.Errorf("mounts (-want +got):\n%s", diff)
		}
		if err := r.set.Inputs("one").Memory.WriteFile("request", nil, 0o444); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(source, "request")); err != nil {
			t.Error(err)
		}

		// A killed daemon's inputs go, the directory stays.
		if err := os.Mkdir(filepath.Join(path, "gone"), 0o755); err != nil {
			t.Fatal(err)
		}
		r.restart()
		if diff := cmp.Diff(want, r.mounts("one")); diff != "" {
			t.Errorf("mounts after a restart (-want +got):\n%s", diff)
		}
		if _, err := os.Stat(filepath.Join(source, "request")); !os.IsNotExist(err) {
			t.Errorf("the input of a request that is gone: %v", err)
		}
		if _, err := os.Stat(filepath.Join(path, "gone")); !os.IsNotExist(err) {
			t.Errorf("the directory of an instance that is gone: %v", err)
		}

		r.set.Stop("one", 0)
		synctest.Wait()
		r.wantNothing("one")
		if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
			t.Errorf("left are %v, %v", left, err)
		}
	})
}

// An instance that was started without it has none later: its sandbox would not see it.
func TestAnInstanceFromBeforeMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start("one", r.serving()...)
		r.ready("one")
		r.memory, _ = stagingtest.Memory(t)
		r.restart()
		if dir := r.set.Inputs("one"); dir == nil || dir.Memory != nil {
			t.Errorf("its inputs are %+v", dir)
		}
		if m := r.mounts("one"); len(m) != 1 {
			t.Errorf("mounts: %v", m)
		}
	})
}
