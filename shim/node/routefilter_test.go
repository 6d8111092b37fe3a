package node_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/headstart-mesh/headstart/shim/node"
)

// Gateways find the module of the daemon that runs, whole and for them to read.
func TestTheRouteFilterIsForTheGateways(t *testing.T) {
	filter, path := filepath.Join(t.TempDir(), "module"), filepath.Join(t.TempDir(), "route.wasm")
	versions := map[string]bool{}
	for _, content := range []string{"one", "another"} {
		if err := os.WriteFile(filter, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := node.InstallRouteFilter(filter, path)
		if err != nil {
			t.Fatal(err)
		}
		versions[m.Version] = true
		if got, err := os.ReadFile(path); err != nil || string(got) != content || m.Path != path {
			t.Errorf("%q has %q, error %v", m.Path, got, err)
		}
	}
	if len(versions) != 2 {
		t.Errorf("two modules have the versions %v", versions)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.FileMode(0o644) {
		t.Errorf("its mode is %v, error %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, error %v", left, err)
	}

	if m, err := node.InstallRouteFilter(filter+".missing", path); err == nil || m.Name != "" {
		t.Errorf("a missing module: %+v, %v", m, err)
	}
	for range 2 {
		if m, err := node.InstallRouteFilter("", path); err != nil || m.Name != "" {
			t.Errorf("without the filter: %+v, %v", m, err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the module of before is there: %v", err)
	}
}
