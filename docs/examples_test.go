package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What the page shows is what tests run: each of its pieces is in the sample.
func TestExamplesAreTheSample(t *testing.T) {
	page, err := os.ReadFile("reference/socket.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, file := range map[string]string{"go": "main.go", "python": "handoff.py"} {
		source, err := os.ReadFile("../e2e/functions/handoff/" + file)
		if err != nil {
			t.Fatal(err)
		}
		// The page's own words are in place of Python's.
		sample := regexp.MustCompile(`(?m)^ *""".*"""\n\n?`).ReplaceAllString(string(source), "")
		blocks := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1)
		if len(blocks) != 7 {
			t.Errorf("%d examples in %s", len(blocks), language)
		}
		for _, block := range blocks {
			for piece := range strings.SplitSeq(block[1], "\n\n") {
				if !strings.Contains(sample, strings.TrimSpace(piece)) {
					t.Errorf("%s has not:\n%s", file, piece)
				}
			}
		}
	}
}
