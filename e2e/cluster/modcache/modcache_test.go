package modcache_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headstart-mesh/headstart/e2e/cluster/modcache"
)

// Modules of this repository's own go.mod are there when its tests are.
func TestModulesAreFound(t *testing.T) {
	modules := []string{"golang.org/x/sync", "golang.org/x/sys"}
	dirs, err := modcache.Dirs(t.Context(), "../../..", modules...)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if _, err := os.Stat(filepath.Join(dirs[m], "go.mod")); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
	if _, err := modcache.Dirs(t.Context(), "../../..", "example.test/nothing"); err == nil {
		t.Error("a module that go.mod does not name is found")
	}
}
