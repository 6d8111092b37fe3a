package pods_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
)

// sockets note what is open, by pod.
type sockets struct {
	mu   sync.Mutex
	open map[string]string
}

func (s *sockets) Open(id, namespace string, dir *os.Root) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = dir.Close()
	s.open[id] = namespace + " " + filepath.Base(dir.Name())
	return nil
}

func (s *sockets) Close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, id)
}

func (s *sockets) want(t *testing.T, ids ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []string
	for id, what := range s.open {
		namespace, _, _ := strings.Cut(id, "_")
		if what != namespace+" socket" {
			t.Errorf("%s is %q", id, what)
		}
		got = append(got, id)
	}
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		t.Errorf("open are %q, want %q", got, ids)
	}
}

func newRigWithSockets(t *testing.T) *rig {
	r := newRig(t)
	r.restartWith(&sockets{open: map[string]string{}})
	return r
}

// restartWith is the daemon's.
func (r *rig) restartWith(s *sockets) {
	r.t.Helper()
	r.Close()
	r.sockets = s
	r.open()
}

// A pod has one socket, for all of its containers that ask, until the last of them is gone.
func TestAPodHasASocket(t *testing.T) {
	r := newRigWithSockets(t)
	for _, container := range []string{"a", "b"} {
		d := r.described(container, pod("fire-x", container))
		want := &nodeapi.Mount{Source: filepath.Join(r.dir, one, "socket"), Destination: "/headstart/socket", ReadOnly: true}
		if diff := cmp.Diff(want, d.GetMounts()[len(d.GetMounts())-1], protocmp.Transform()); diff != "" || d.GetEnv()["HEADSTART_SOCKET"] != "/headstart/socket/headstart.sock" {
			t.Errorf("%v (-want +got):\n%s", d, diff)
		}
	}
	r.sockets.want(t, one)
	if info, err := os.Stat(filepath.Join(r.dir, one, "socket")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	r.gone("a", pod("fire-x", "a"))
	r.sockets.want(t, one)
	r.gone("b", pod("fire-x", "b"))
	r.sockets.want(t)
	if left := names(t, r.dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A daemon that is started again serves the pods that run, also those with the longest names;
// what cannot be read is no reason not to start.
func TestSocketsOutliveTheDaemon(t *testing.T) {
	r := newRigWithSockets(t)
	long := &nodeapi.Pod{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253), Uid: strings.Repeat("u", 36), Container: "a"}
	r.described("a", pod("fire-x", "a"))
	r.described("b", long)
	id := long.GetNamespace() + "_" + long.GetName() + "_" + long.GetUid()
	for name, content := range map[string]string{"torn": "", "another": one, "path": "../../x", "old": ""} {
		if err := os.MkdirAll(filepath.Join(r.dir, name, "socket"), 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "old" {
			continue
		}
		if err := os.WriteFile(filepath.Join(r.dir, name, "pod"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.restartWith(&sockets{open: map[string]string{}})
	r.sockets.want(t, one, id)
	r.gone("b", long)
	r.sockets.want(t, one)
	r.has()
	r.gone("a", pod("fire-x", "a"))
	r.sockets.want(t)
}
