package sourcetest

import (
	"os"
	"path/filepath"
	"testing"
)

// Secrets returns a secrets directory with one secret in it.
func Secrets(t *testing.T, name string, mode os.FileMode, content string) *os.Root {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	// Not by WriteFile, which leaves out what the umask does.
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	})
	return root
}
