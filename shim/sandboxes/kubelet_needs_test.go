package sandboxes_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headstart-mesh/headstart/shim/nodeapi"
	"github.com/headstart-mesh/headstart/shim/sandboxes"
)

func newPodRigWith(t *testing.T, p *provider) *podRig {
	r := newPodRig(t)
	r.restartWith(p)
	return r
}

// restartWith is the daemon's.
func (r *podRig) restartWith(p *provider) {
	r.t.Helper()
	r.Close()
	r.configure.Providers = []sandboxes.Provider{p}
	r.open()
}

func wantBrought(t *testing.T, p *provider, ids ...string) {
	t.Helper()
	got := p.brought()
	slices.Sort(got)
	want := []string{}
	for _, id := range ids {
		namespace, _, _ := strings.Cut(id, "_")
		want = append(want, namespace+" "+id)
	}
	if !slices.Equal(got, want) {
		t.Errorf("brought to %q, want %q", got, want)
	}
}

// All containers of a pod that ask have the same need, until the last of them is gone.
func TestAPodHasANeed(t *testing.T) {
	p := &provider{name: "socket"}
	r := newPodRigWith(t, p)
	for _, container := range []string{"a", "b"} {
		d := r.described(container, pod("fire-x", container))
		want := &nodeapi.Mount{
			Source: filepath.Join(r.dir, one, "socket"), Destination: "/headstart/socket", ReadOnly: true,
		}
		if diff := cmp.Diff(want, d.GetMounts()[len(d.GetMounts())-1], protocmp.Transform()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", d, diff)
		}
	}
	wantBrought(t, p, one)
	r.gone("a", pod("fire-x", "a"))
	wantBrought(t, p, one)
	r.gone("b", pod("fire-x", "b"))
	wantBrought(t, p)
	if left := names(t, r.dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A daemon that is started again serves the pods that run, also those with the longest names;
// what cannot be read is no reason not to start.
func TestNeedsOfPodsOutliveTheDaemon(t *testing.T) {
	r := newPodRigWith(t, &provider{name: "socket"})
	long := &nodeapi.Pod{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("p", 253),
		Uid: strings.Repeat("u", 36), Container: "a"}
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
	p := &provider{name: "socket"}
	r.restartWith(p)
	wantBrought(t, p, one, id)
	r.gone("b", long)
	wantBrought(t, p, one)
	r.has()
	r.gone("a", pod("fire-x", "a"))
	wantBrought(t, p)
}
