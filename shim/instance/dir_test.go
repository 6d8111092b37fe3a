package instance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestIDs(t *testing.T) {
	for id, ok := range map[string]bool{
		"default-fire-00001-x7": true, "a": true, "0": true, strings.Repeat("a", idLimit): true,
		"": false, strings.Repeat("a", idLimit+1): false,
		".": false, "..": false, "../x": false, "/etc": false, "a/b": false, "a\x00": false,
		"A": false, "ä": false, "a b": false, "a.json": false, "a\n": false,
	} {
		if err := checkID(id); (err == nil) != ok {
			t.Errorf("%q: %v", id, err)
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
	for _, id := range []string{"", ".", "..", "../precious", "../../x", "/etc", "a", "a/../../precious", "a\x00b", "input", "precious"} {
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
		d, err := openDir(filepath.Join(top, "instances"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.root.Close()
		if inputs, _, err := d.takeOver(id); err == nil {
			t.Errorf("%q was taken over", id)
			_ = inputs.Close()
		}
		inputs, err := d.make(id)
		if (err == nil) != (checkID(id) == nil) {
			t.Errorf("making %q: %v", id, err)
		}
		if err == nil {
			_ = inputs.Close()
			if info, err := os.Stat(d.inputPath(id)); err != nil || !info.IsDir() || filepath.Dir(filepath.Dir(d.inputPath(id))) != d.root.Name() {
				t.Errorf("%q is at %s: %v", id, d.inputPath(id), err)
			}
		}
		if err := d.remove(id); err != nil {
			t.Errorf("removing %q: %v", id, err)
		}
		for dir, want := range map[string]int{top: 2, d.root.Name(): 0, filepath.Dir(precious): 2} {
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != want {
				t.Errorf("%q: %s has %v, %v", id, dir, entries, err)
			}
		}
	})
}

// What a killed daemon left on its disk may be torn or tampered with.
func FuzzTakeOver(f *testing.F) {
	for _, m := range []string{`{"port":8080}`, `{"port":0}`, `{"port":70000}`, `{"port":-1}`, `{`, ``, `null`, `{"port":"8080"}`} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := openDir(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.root.Close()
		made, err := d.make("one")
		if err != nil {
			t.Fatal(err)
		}
		_ = made.Close()
		if err := d.root.WriteFile(filepath.Join("one", metaName), content, 0o600); err != nil {
			t.Fatal(err)
		}
		inputs, m, err := d.takeOver("one")
		if err != nil {
			return
		}
		defer inputs.Close()
		if m.Port < 1 || m.Port > 65535 {
			t.Errorf("port %d", m.Port)
		}
	})
}
