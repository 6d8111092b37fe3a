package containerd

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var bridge = netip.MustParseAddr("10.201.1.1")

// resolve is what programs do with a hosts file (hosts(5)): the addresses of each name.
func resolve(t interface{ Fatal(...any) }, path string) map[string][]string {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 {
			for _, name := range fields[1:] {
				all[name] = append(all[name], fields[0])
			}
		}
	}
	return all
}

// Whatever functions come and go, and whenever the daemon starts anew: sandboxes find those
// that there are at their own node's gateway, and no others, in the file that they were made
// with.
func TestSandboxesFindTheFunctionsThereAre(t *testing.T) {
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		path := filepath.Join(dir, fmt.Sprint(files))
		var h *hosts
		open := func() {
			var err error
			if h, err = openHosts(path, bridge); err != nil {
				t.Fatal(err)
			}
		}
		open()
		mounted, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			if rapid.Bool().Draw(t, "restart") {
				open()
			}
			names := rapid.SliceOf(rapid.SampledFrom([]string{"a.default", "b.default", "a.default.headstart.local", "fire.video", "f.v"})).Draw(t, "names")
			if err := h.set(names); err != nil {
				t.Fatal(err)
			}
			want := map[string][]string{"localhost": {"127.0.0.1", "::1"}}
			for _, name := range names {
				want[name] = []string{bridge.String()}
			}
			got := resolve(t, path)
			if len(got) != len(want) {
				t.Fatalf("%v, want %v", got, want)
			}
			for name, at := range want {
				if !slices.Equal(got[name], at) {
					t.Fatalf("%v, want %v", got, want)
				}
			}
		}
		if now, err := os.Stat(path); err != nil || !os.SameFile(mounted, now) {
			t.Fatalf("another file than sandboxes have: %v", err)
		}
	})
}

// A program that reads while other functions come and go finds those that stay.
func TestNamesStayInTheirPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	h, err := openHosts(path, bridge)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.set([]string{"goes.default", "stays.default"}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(before), h.line("stays.default"))
	for _, names := range [][]string{
		{"stays.default"}, {"stays.default", "comes.default"}, {"comes.default", "goes.default", "stays.default"},
	} {
		if err := h.set(names); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(path)
		if err != nil || len(now) < len(before) || strings.Index(string(now), h.line("stays.default")) != at {
			t.Fatalf("after %q: %q, %v", names, now, err)
		}
	}
}

// The file of a platform whose functions are ever others does not grow without end.
func TestNamesOfBeforeAreForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hosts")
	h, err := openHosts(path, bridge)
	if err != nil {
		t.Fatal(err)
	}
	most := int64(0)
	for i := range 100 {
		var names []string
		for j := range 500 {
			names = append(names, fmt.Sprintf("function-%d-%d.default.headstart.local", i, j))
		}
		if err := h.set(names); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, info.Size())
		if got := resolve(t, path); len(got) != 501 {
			t.Fatalf("%d names", len(got))
		}
	}
	if most > 2*hostsMost {
		t.Errorf("%d bytes", most)
	}
}

// What is no file of this node's is made anew: of another network, cut off, or somebody's.
func TestOtherHostsFilesAreReplaced(t *testing.T) {
	for name, text := range map[string]string{
		"another address": hostsHead + "10.9.1.1\ta.default\n",
		"cut off":         hostsHead + "10.201.1.1\ta.def",
		"no tab":          hostsHead + "10.201.1.1 a.default\n",
		"no address":      hostsHead + "\ta.default\n",
		"another's":       "127.0.0.1 localhost\n",
		"nothing":         "",
	} {
		path := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		h, err := openHosts(path, bridge)
		if err == nil {
			err = h.set([]string{"b.default"})
		}
		if got := resolve(t, path); err != nil || len(got) != 2 || !slices.Equal(
			got["b.default"], []string{bridge.String()},
		) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
