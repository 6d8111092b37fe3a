package docs_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/published"
)

var update = flag.Bool("update", false, "write the tables instead of comparing with them")

// Pages with tables of what was measured.
var measured = []string{"../README.md", "results/README.md", "results/routing.md"}

func TestTablesAreThoseOfTheirResults(t *testing.T) {
	for _, page := range measured {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		filled, err := published.Fill(page, string(text), "results")
		if err != nil {
			t.Error(err)
			continue
		}
		if *update {
			if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if d := cmp.Diff(string(text), filled); d != "" {
			t.Errorf("%s: make generate makes its tables from docs/results/*.json (-page +results):\n%s", page, d)
		}
	}
}
