package docs_test

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/published"
)

var update = flag.Bool("update", false, "write the tables instead of comparing with them")

// Pages with tables of what was measured.
var measured = []string{"../README.md", "results/README.md", "results/routing.md", "results/cache.md", "results/connections.md", "results/speculation.md"}

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

// The README's picture is drawn from the results that its table has.
func TestThePictureIsThatOfItsResults(t *testing.T) {
	const path = "results/demo.svg"
	results, err := os.ReadFile("results/demo.json")
	if err != nil {
		t.Fatal(err)
	}
	var drawn bytes.Buffer
	if err := published.Picture(&drawn, results); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, drawn.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if picture, err := os.ReadFile(path); err != nil || !bytes.Equal(picture, drawn.Bytes()) {
		t.Errorf("%s is not drawn from results/demo.json (make generate draws it): %v", path, err)
	}
}
