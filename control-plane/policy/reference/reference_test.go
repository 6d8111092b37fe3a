package reference_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/control-plane/policy/reference"
	grammar "github.com/headstart-mesh/headstart/filters/filterapi/reference"
)

var update = flag.Bool("update", false, "write the page instead of comparing with it")

const file = "../../../docs/reference/annotations.md"

func TestThePageIsUpToDate(t *testing.T) {
	if *update {
		if err := os.WriteFile(file, []byte(reference.Page()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(page), reference.Page()); d != "" {
		t.Errorf("make generate brings the page up to date (-page +source):\n%s", d)
	}
}

// The page has all kinds of references.
func TestThePageHasTheGrammar(t *testing.T) {
	for _, k := range grammar.Kinds() {
		if !strings.Contains(reference.Page(), k.Form) {
			t.Errorf("the page lacks %s", k.Form)
		}
	}
}

// Each mistake of the page must be one.
func TestEveryMistakeIsRefused(t *testing.T) {
	if strings.Contains(reference.Page(), "| `` |") {
		t.Error("the page has a mistake that policy.Parse accepts")
	}
}
