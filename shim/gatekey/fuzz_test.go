package gatekey

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file makes keys that only their own functions have, or an error that names it.
func FuzzOpen(f *testing.F) {
	f.Add([]byte(`{"secret":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=","keylessUntil":"2026-01-01T00:00:00Z"}`), "a/b", "a/c")
	f.Add([]byte(`{"secret":"c2hvcnQ="}`), "a/b", "")
	f.Add([]byte(``), "", "")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte, one, two string) {
		file := filepath.Join(dir, "keys.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := Open(file)
		if err != nil {
			if !strings.Contains(err.Error(), file) {
				t.Errorf("%v", err)
			}
			return
		}
		if !k.Valid(one, k.Of(one)) || one != two && k.Valid(two, k.Of(one)) {
			t.Errorf("%q and %q", one, two)
		}
	})
}
