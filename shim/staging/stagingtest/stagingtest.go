// Package stagingtest has what tests of packages that stage inputs need.
package stagingtest

import (
	"path/filepath"
	"testing"

	"github.com/headstart-mesh/headstart/shim/staging"
)

// Memory returns directories for inputs in memory, and the path that they are below. They are
// open until the test's end.
func Memory(t *testing.T) (m *staging.Memory, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "memory")
	m, err := staging.OpenMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, path
}
