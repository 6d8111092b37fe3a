// Package examples_test keeps the example manifests deployable.
package examples_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headstart-mesh/headstart/control-plane/knative"
	"github.com/headstart-mesh/headstart/shim/nodeapi/stores"
)

const storesFile = "stores.yaml"

func TestExamplesCanBeDeployed(t *testing.T) {
	allowed, err := stores.Load(storesFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	deployed := 0
	for _, name := range files {
		if name == storesFile {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		functions, err := knative.Parse(f, allowed, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		deployed += len(functions)
	}
	if deployed == 0 {
		t.Error("no example has a function")
	}
}
