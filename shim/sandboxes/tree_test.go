package sandboxes

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"default-fire-00001-x7": true, "a": true, "0": true, "A": true, "default_fire-x.y_u-1": true,
		strings.Repeat("a", idLimit): true,
		"":                           false, strings.Repeat("a", idLimit+1): false,
		".": false, "..": false, ".a": false, "../x": false, "/etc": false, "a/b": false, "a\x00": false,
		"ä": false, "a b": false, "a\n": false,
	} {
		if err := checkName(name, idLimit); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPorts(t *testing.T) {
	for port, ok := range map[int32]bool{-1: false, 0: false, 1: true, 65535: true, 65536: false, 65536 + 22: false} {
		if err := checkPort(port); (err == nil) != ok {
			t.Errorf("%d: %v", port, err)
		}
	}
}

// Whatever an id holds, nothing outside of the directory is read, made or removed.
func FuzzIDsStayBelow(f *testing.F) {
	for _, id := range []string{
		"", ".", "..", "../precious", "../../x", "/etc", "a", "a/../../precious", "a\x00b", "input", "precious",
	} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		top := t.TempDir()
		precious := filepath.Join(top, "precious", inputName)
		if err := os.MkdirAll(precious, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, "precious", metaName), []byte(`{"port":80}`), 0o600); err != nil {
			t.Fatal(err)
		}
		tree, err := openTree(filepath.Join(top, "instances"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tree.close()
		if _, err := tree.read(id, metaName); err == nil {
			t.Errorf("%q is known", id)
		}
		if _, err := tree.inputs(id); err == nil {
			t.Errorf("%q has inputs", id)
		}
		err = tree.make(id)
		if (err == nil) != (checkName(id, idLimit) == nil) {
			t.Errorf("making %q: %v", id, err)
		}
		if err == nil {
			path := tree.need(id).Mounts[0].Source
			if info, err := os.Stat(path); err != nil || !info.IsDir() || filepath.Dir(filepath.Dir(path)) != tree.root.Name() {
				t.Errorf("%q is at %s: %v", id, path, err)
			}
		}
		if _, err := tree.remove(id); err != nil {
			t.Errorf("removing %q: %v", id, err)
		}
		for dir, want := range map[string]int{top: 2, tree.root.Name(): 0, filepath.Dir(precious): 2} {
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
				t.Errorf("%q: %s has %v, %v", id, dir, entries, err)
			}
		}
	})
}

// What a killed daemon left on its disk may be torn or tampered with.
func FuzzMeta(f *testing.F) {
	for _, m := range []string{
		`{"port":8080}`, `{"port":0}`, `{"port":70000}`, `{"port":-1}`, `{`, ``, `null`, `{"port":"8080"}`,
		`{"job":true}`,
	} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		s, err := open(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		l := &Local{Set: s}
		if err := s.tree.make("one"); err != nil {
			t.Fatal(err)
		}
		if err := s.tree.write("one", metaName, content); err != nil {
			t.Fatal(err)
		}
		if m, err := l.readMeta("one"); err == nil && !m.Job && (m.Port < 1 || m.Port > 65535) {
			t.Errorf("port %d", m.Port)
		}
	})
}

// A sandbox's directories are those of its own: what lies there under their names is not followed.
func TestLinksOutOfTheTree(t *testing.T) {
	outside := t.TempDir()
	tree, err := openTree(filepath.Join(t.TempDir(), "instances"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	if err := tree.make("one"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(tree.root.Name(), "one", "volume")); err != nil {
		t.Fatal(err)
	}
	for _, may := range []bool{false, true} {
		if root, path, err := tree.directory("one", "volume", may); err == nil {
			t.Errorf("%s, %v", path, root.Close())
		}
	}
	if _, err := tree.remove("one"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
}
