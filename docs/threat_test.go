package docs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headstart-mesh/headstart/e2e/trust"
)

// The threat model has the attacks that are tried, and each sentence that names a test names one of them.
func TestTheThreatModelHasTheAttacks(t *testing.T) {
	const page, made = "operations/threat-model.md", "Do not edit from here on. -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	words, old, is := strings.Cut(string(text), made)
	if !is {
		t.Fatalf("%s lacks %q", page, made)
	}
	list := "\n" + trust.Page()
	if *update {
		if err := os.WriteFile(page, []byte(words+made+list), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(list, old); d != "" {
		t.Errorf("%s: make generate makes its list from e2e/trust (-e2e/trust +page):\n%s", page, d)
	}
	attacks := set{}
	for _, a := range trust.Attacks {
		attacks.add(a.Test)
	}
	for name := range found(t, page, "`((?:Test|Fuzz)[A-Za-z]+)`") {
		if !attacks[name] {
			t.Errorf("%s names %s, which is not in e2e/trust", page, name)
		}
	}
}
