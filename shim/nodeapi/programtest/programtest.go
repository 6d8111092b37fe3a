// Package programtest finds the programs and filters that tests run.
package programtest

import (
	"os"
	"path/filepath"
	"testing"
)

// directory is the environment variable that names where they are: what `make setup build` fills.
const directory = "HEADSTART_BIN"

// Path returns where a file of that name is. Without it the test fails.
func Path(t testing.TB, name string) string {
	t.Helper()
	in := os.Getenv(directory)
	if in == "" {
		t.Fatalf("%s must name the directory of the built programs; `make test` sets it", directory)
	}
	path, err := filepath.Abs(filepath.Join(in, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s must name the directory of the built programs: %v", directory, err)
	}
	return path
}
