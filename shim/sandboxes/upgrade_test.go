package sandboxes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/headstart-mesh/headstart/shim/sandboxes"
	"github.com/headstart-mesh/headstart/shim/sandboxes/sandboxestest"
)

// left makes the files that a daemon of an earlier version has left.
func left(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The directories of pods that an earlier version has made are found again, by these names.
func TestPodsOfAnEarlierVersion(t *testing.T) {
	r := newPodRig(t)
	left(t, filepath.Join(r.dir, one), map[string]string{
		"input/job": "frames", "input/0123": "", "containers/a": "", "socket/headstart.sock": "", "pod": one, "job": "",
	})
	socket := &provider{name: "socket"}
	r.restartWith(socket)
	if !r.SaysJob(one) {
		t.Error("it is no job any more")
	}
	if got := names(t, filepath.Join(r.dir, one, "input")); !slices.Equal(got, []string{"job"}) {
		t.Errorf("its inputs are %v", got)
	}
	wantBrought(t, socket, one)
	r.has()
	if got := names(t, r.dir); !slices.Equal(got, []string{one}) {
		t.Errorf("left with its container: %v", got)
	}
	r.gone("a", pod("fire-x", "a"))
	if got := names(t, r.dir); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// So are those of the sandboxes that the daemon itself has made.
func TestSandboxesOfAnEarlierVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set.Close()
		c, err := r.node.Create(t.Context(),
			sandboxes.Spec{ID: "one", Function: function, Image: sandboxestest.Image, Args: r.serving()})
		if err == nil {
			err = c.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		left(t, filepath.Join(r.path, "one"), map[string]string{
			"input/0123": "", "socket/headstart.sock": "", "meta.json": fmt.Sprintf(`{"port":%d}`, r.port),
		})
		socket := &provider{name: "socket"}
		r.configure.Providers = []sandboxes.Provider{socket}
		r.open()
		at := netip.AddrPortFrom(c.Address(), r.port)
		r.wantStatuses(isReady("one", at))
		if got := socket.brought(); !slices.Equal(got, []string{"default one"}) {
			t.Errorf("brought to %v", got)
		}
		if got := names(t, filepath.Join(r.path, "one", "input")); len(got) != 0 {
			t.Errorf("its inputs are %v", got)
		}
		r.set.Stop("one", 0)
		synctest.Wait()
		r.wantNothing("one")
	})
}
