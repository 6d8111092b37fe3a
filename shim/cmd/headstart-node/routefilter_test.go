package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Gateways find the module of the daemon that runs, whole and for them to read.
func TestTheRouteFilterIsForTheGateways(t *testing.T) {
	c := config{platform: platformKubernetes, runDir: t.TempDir(), routeFilter: filepath.Join(t.TempDir(), "module")}
	if err := os.Mkdir(c.gateway(""), 0o711); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.runDir, "gateway", "route.wasm")
	versions := map[string]bool{}
	for _, content := range []string{"one", "another"} {
		if err := os.WriteFile(c.routeFilter, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := c.installRouteFilter()
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
	if left, err := os.ReadDir(c.gateway("")); err != nil || len(left) != 1 {
		t.Errorf("the directory has %v, error %v", left, err)
	}

	missing := c
	missing.routeFilter += ".missing"
	if m, err := missing.installRouteFilter(); err == nil || m.Name != "" {
		t.Errorf("a missing module: %+v, %v", m, err)
	}
	c.routeFilter = ""
	for range 2 {
		if m, err := c.installRouteFilter(); err != nil || m.Name != "" {
			t.Errorf("without the filter: %+v, %v", m, err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the module of before is there: %v", err)
	}
}
