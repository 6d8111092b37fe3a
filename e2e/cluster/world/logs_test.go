package world

import (
	"os"
	"path/filepath"
	"testing"
)

// Logs are kept as they lie; where there are none, nothing is wrong.
func TestLogsAreCopied(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	if err := copyTree(filepath.Join(from, "nothing"), to); err != nil {
		t.Error(err)
	}
	pod := filepath.Join("default_fire_1", "fire")
	if err := os.MkdirAll(filepath.Join(from, pod), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, pod, "0.log"), []byte("ready\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(from, to); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(to, pod, "0.log")); err != nil || string(got) != "ready\n" {
		t.Errorf("%q, %v", got, err)
	}
}
